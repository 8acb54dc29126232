"""`python -m demo`: one upgrade of a small simulated fleet, and the audit of it."""

import sys

if __name__ == "__main__":
    try:
        from demo.cli import main
    except KeyboardInterrupt:  # the import takes a second or two
        sys.exit(130)
    sys.exit(main())
