"""`python -m demo`: one upgrade of a small simulated fleet, and the audit of it."""

import sys
from contextlib import suppress

from libs.ctl.output import prepare_streams

if __name__ == "__main__":
    prepare_streams()
    if not {"-h", "--help"} & set(sys.argv):
        with suppress(OSError):  # told once the demo is loaded
            print("Loading the demo.", flush=True)  # the import takes seconds on a busy machine
    try:
        from demo.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
