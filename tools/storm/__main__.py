"""`python -m tools.storm --minutes 15`: one storm; the exit status is 1 if it found anything."""

import argparse
import asyncio
import logging
import sys
import time

from tools.storm.storm import result_lines, run_storm


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="storm",
        description="Upgrade the demo's fleet under faults and a hostile node; audit the run.",
    )
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--nodes", type=int, default=4, choices=range(3, 9), metavar="3-8")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    started = time.monotonic()

    def print_line(line: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {line}", flush=True)

    result = asyncio.run(
        run_storm(
            minutes=options.minutes,
            nodes=options.nodes,
            seed=options.seed,
            print_line=print_line,
        )
    )
    print("\n".join(result_lines(result)))
    return 0 if result.is_ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
