"""Drained seconds of a node with and without its image there beforehand, in the same world.

A simulation, which the output says. Nothing goes wrong, and everything but the pull takes its usual
time.
"""

from msgspec.structs import replace

from bench.plan import fleet_of
from bench.report import BenchReport
from libs.forecast.aggregate import upper_median
from libs.forecast.play import play
from libs.forecast.play_result import PlayResult
from libs.rollout.views.fleet import Fleet
from libs.testing.stage.worlds import SteadyWorld

TITLE = "drained seconds of a node with and without its image there beforehand (simulated)"
NODES = 100
PULLS = (2.0, 120.0)
"""Seconds in which the driver's image is pulled."""
PARALLEL = 10
LONG = 10.0
"""A pull of fewer seconds ends while the old driver is stopped and unloaded."""

_IMAGE = "r.example/nvidia/driver"


async def run(report: BenchReport) -> None:
    print(f"  {NODES} nodes, {PARALLEL} at a time, three of five with work", flush=True)
    for seconds in PULLS:
        pulled, brought = (_play(seconds, ahead=ahead) for ahead in (False, True))
        report.compare(f"an image of {seconds:g} s", "pulled then", "before")
        report.compare("  a node is drained for", _drained(pulled), _drained(brought), "s")
        report.compare("    of that pulling", _pulling(pulled), _pulling(brought), "s")
        report.compare("  until the last node", pulled.duration, brought.duration, "s")
        report.compare("  GPU-hours lost", _lost(pulled), _lost(brought))
        report.at_most("pulling, of a node whose image is there", _pulling(brought), 0.0, "s")
        if seconds > LONG:
            saved = _drained(pulled) - _drained(brought)
            report.at_least("saved, of the pull's seconds", saved / seconds, 0.9, "x")


def _play(seconds: float, *, ahead: bool) -> PlayResult:
    fleet, now = fleet_of(NODES, parallel=PARALLEL)
    (pool,) = fleet.pools
    played = _with_images(fleet) if ahead else fleet
    return play(played, now, pool=pool, world=SteadyWorld(pull_seconds=seconds))


def _with_images(fleet: Fleet) -> Fleet:
    pools = {
        key: replace(
            pool,
            builds={
                target: {
                    variant: replace(build, image=f"{_IMAGE}:{target}")
                    for variant, build in variants.items()
                }
                for target, variants in pool.builds.items()
            },
        )
        for key, pool in fleet.pools.items()
    }
    return replace(fleet, pools=pools)


def _drained(result: PlayResult) -> float:
    found = (node.drained for node in result.nodes.values())
    return upper_median(seconds for seconds in found if seconds is not None)


def _pulling(result: PlayResult) -> float:
    return upper_median(node.pulling for node in result.nodes.values() if node.drained is not None)


def _lost(result: PlayResult) -> float:
    return result.gpu_seconds / 3600.0
