"""Start and stop a pair of real nodes, again and again: `python -m tools.soak nodes [--times N]`.

After each time mounts, links, cgroups, processes, folders and kernel settings are those of before,
and this process has no more open files than after the first time.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from libs.testing.realnodes.ground import find_nodes
from tests.system.nodes.leftovers import left_by_a_pair


def main(arguments: list[str]) -> int:
    """Run the soak and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="soak nodes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50)
    times = parser.parse_args(arguments).times
    search = find_nodes(os.environ)
    print(search.explanation, flush=True)
    if search.binaries is None:
        return 1
    most_open = 0
    for number in range(1, times + 1):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sluice-soak-") as folder:
            tempfile.tempdir = folder
            try:
                left = asyncio.run(left_by_a_pair(search, Path(folder)))
            finally:
                tempfile.tempdir = None
        now_open = len(os.listdir("/proc/self/fd"))
        most_open = most_open or now_open
        if now_open > most_open:
            left.append(f"{now_open - most_open} open files")
        seconds = time.monotonic() - started
        print(
            f"{number} of {times}, {seconds:.0f} s: {'; '.join(left) or 'nothing is left'}",
            flush=True,
        )
        if left:
            return 1
    return 0
