"""`python -m libs.ctl`: the command where it is not installed, as in the image."""

import sys

from libs.ctl.command import main

if __name__ == "__main__":
    sys.exit(main())
