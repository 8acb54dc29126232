"""Run all benchmarks or the named ones; each is a module with `TITLE` and `run(report)`."""

import argparse
import asyncio
import importlib
import sys

from bench.report import BenchReport

BENCHES = (
    "nodes",
    "fleet",
    "fleet_page",
    "slots",
    "report_cache",
    "fanin",
    "memory",
    "devices",
    "telemetry",
    "policy",
    "decide",
    "plan",
    "prediction",
    "second_upgrade",
    "prefetch",
    "incumbent",
    "starts",
    "signin",
    "scheduler",
    "status",
    "live_view",
    "web",
)


def main() -> int:
    """Run the benchmarks; the exit status is 1 if a figure exceeds its budget."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--nodes", type=int, help="the size of the fleet of `incumbent`")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(BENCHES)}")
    report = BenchReport()
    for name in options.names or BENCHES:
        bench = importlib.import_module(f"bench.{name}")
        print(f"{name}: {bench.TITLE}", flush=True)
        if not options.list:
            sized = {"nodes": options.nodes} if options.nodes and name == "incumbent" else {}
            asyncio.run(bench.run(report, **sized))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
