"""`python -m backprint`."""

from backprint.cli import main

if __name__ == "__main__":
    main(prog_name="backprint")
