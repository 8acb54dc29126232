"""The `sluice` command."""

import argparse
from collections.abc import Sequence
from importlib.metadata import version


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="sluice", description="Look after the NVIDIA GPU nodes of a Kubernetes cluster."
    )
    parser.add_argument("--version", action="version", version=f"sluice {version('sluice')}")
    parser.parse_args(arguments)
    parser.print_help()
    return 0
