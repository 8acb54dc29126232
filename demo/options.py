"""The command-line options of the demo."""

import argparse
from collections.abc import Sequence
from typing import Final

import msgspec

from demo.environment import KILLABLE
from demo.fleet import DEFAULT_NODES, FEWEST, MOST

_USAGE: Final = (
    "make demo ARGS='[--nodes N] [--seed N] [--speed X] [--kill SERVICE] [--real] [--once]"
    " [--no-tty]'"
)
_WHAT: Final = (
    "Upgrade the driver of a simulated fleet of two pools with all services, and audit the run."
)
_SLOWEST, _FASTEST = 0.1, 10.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The command-line options."""

    nodes: int
    seed: int
    speed: float
    kill: str
    real: bool
    once: bool
    no_tty: bool


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the command line; print errors and exit with 2."""
    parser = argparse.ArgumentParser(prog="make demo", usage=_USAGE, description=_WHAT)
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=DEFAULT_NODES,
        metavar="N",
        help=f"number of machines, {FEWEST} to {MOST} (default {DEFAULT_NODES})",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the simulation (default 0)"
    )
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="X",
        help="speed of the machines, in multiples of the usual one (default 1)",
    )
    parser.add_argument(
        "--kill",
        default="",
        choices=[str(writer) for writer in KILLABLE],
        metavar="SERVICE",
        help="kill this service with SIGKILL while a node is being upgraded: a cluster role, or an"
        f" agent on that node ({', '.join(KILLABLE)})",
    )
    parser.add_argument(
        "--real",
        action="store_true",
        help="run on the real control plane of `make kube`; the machines stay simulated",
    )
    parser.add_argument(
        "--once", action="store_true", help="exit after the upgrade instead of staying up"
    )
    parser.add_argument(
        "--no-tty",
        action="store_true",
        help="print lines also on a terminal, in place of the live view",
    )
    return msgspec.convert(vars(parser.parse_args(arguments)), Options)


def _nodes(text: str) -> int:
    nodes = int(text) if text.isdecimal() else 0
    if not FEWEST <= nodes <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {FEWEST} to {MOST}")
    return nodes


def _speed(text: str) -> float:
    """Parse a speed; a world much faster than its computer would show nothing but that computer."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not _SLOWEST <= speed <= _FASTEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number from {_SLOWEST:g} to {_FASTEST:g}"
        )
    return speed
