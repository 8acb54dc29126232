"""The program `python -m demo`: what it prints when it fails or is stopped, and its exit code."""

import asyncio
import logging
import sys
from typing import cast

from demo.options import parse_options
from demo.run import run_demo
from libs.bus.port import BusError
from libs.ctl.output import leave
from libs.kube.errors import KubeError
from libs.runtime.fatal import Fatal, describe_error
from libs.testing.errors import SimError

STOPPED = 130


def print_line(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    options = parse_options(sys.argv[1:])
    # Failures are printed below; log lines of libraries would only disturb the output.
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(run_demo(options))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print_line("\nInterrupted: the run was not audited. All processes and files are removed.")
        return STOPPED
    except (Fatal, SimError, BusError, KubeError, OSError, ExceptionGroup) as error:
        try:
            sys.stdout.flush()
        except OSError:
            leave(sys.stdout)  # which is why the demo failed
        print(f"\nThe demo failed: {_description(error)}", file=sys.stderr)
        return 1


def _description(error: BaseException) -> str:
    """Describe the first error of a group; keep the lines of a process's last output."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return str(error) if isinstance(error, SimError) else describe_error(error)
