"""`python -m backprint`."""

import sys

try:
    from backprint.cli import main
except KeyboardInterrupt:
    sys.stderr.write("stopped by SIGINT; nothing was changed\n")
    raise SystemExit(130) from None

if __name__ == "__main__":
    main(prog_name="backprint")
