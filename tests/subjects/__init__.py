"""What tests run Backprint on: programs, modules, graphs, scripts, samples and corpora of samples."""
