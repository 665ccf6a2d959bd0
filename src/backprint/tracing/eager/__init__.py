"""Engine `eager`: one real step, written down operator by operator, as straight-line code in which nothing changes."""
