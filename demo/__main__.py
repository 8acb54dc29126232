"""`python -m demo`: one upgrade of a small simulated fleet, and the audit of it."""

import sys

if __name__ == "__main__":
    if not {"-h", "--help"} & set(sys.argv):
        print("Loading the demo.", flush=True)  # the import takes seconds on a busy machine
    try:
        from demo.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
