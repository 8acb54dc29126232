"""What a decision costs, beside decoding the Nodes that it is about."""

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from bench.recorded import NODES as COUNT
from bench.recorded import pages
from bench.report import BenchReport, ratio
from libs.contracts.reports import PodUse, Usage
from libs.contracts.rollout import RolloutStatus
from libs.forecast.stage import Stage, StageNodeSpec
from libs.forecast.world import SteadyWorld
from libs.kube.resources import NODES
from libs.kube.responses import decode_page
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.decide import Decider, decide
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView, RolloutView

TITLE = "5,000 nodes in mid-rollout: decided anew and kept, beside decoding them (CPU seconds)"
ROUNDS = 15
SECONDS_IN = 55.0
WHOLE = 1.0
"""The budget of a whole decision, in the time of decoding."""
ONE = 1 / 300
"""The budget of a decision after one change, in the time of decoding."""

_POOL = "nvidiadriver-all"
_VARIANT = "ubuntu24.04"


async def run(report: BenchReport) -> None:
    """In turns, within one run."""
    fleet, now = _midway()
    bodies = pages()
    decoding: list[float] = []
    whole: list[float] = []
    for _ in range(ROUNDS):
        decoding.append(_took(lambda: _decoded(bodies)))
        whole.append(_took(lambda: decide(fleet, now)))
    waits = decide(fleet, now).waits
    report.figure("nodes decoded", min(decoding) * 1000, "ms", note=f"{COUNT} of them")
    report.figure("decided anew", min(whole) * 1000, "ms", note=f"{len(waits)} wait")
    report.at_most("whole, in time of decoding", ratio(whole, decoding), WHOLE, "x")
    for name, change in _CHANGES.items():
        ours, beside = _one(fleet, now, change, bodies)
        share = ratio(ours, beside) / ONE
        report.figure(f"one change: {name}", min(ours) * 1e6, "us")
        report.at_most("of a 300th of the time of decoding", share, 1.0, "x")


def _took(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _decoded(bodies: Sequence[bytes]) -> int:
    return sum(len(decode_page(body, NODES, path="/").items) for body in bodies)


def _one(
    fleet: Fleet,
    now: Instant,
    change: Callable[[NodeView], NodeView],
    bodies: Sequence[bytes],
) -> tuple[list[float], list[float]]:
    """There and back again, on some nodes, and decoding all of them, in turns.

    The first change after so much other work is not counted: a service has its fleet at hand.
    """
    deciding = Decider(fleet)
    deciding.decide(now)
    times: list[float] = []
    decoding: list[float] = []
    for name in _some(fleet, change):
        decoding.append(_took(lambda: _decoded(bodies)))
        there, back = change(fleet.nodes[name]), fleet.nodes[name]
        took = [
            _took(lambda view=view: _changed(deciding, view, now)) for view in (there, back) * 2
        ]
        times += took[2:]
    return times, decoding


def _changed(deciding: Decider, node: NodeView, now: Instant) -> None:
    deciding.update([node])
    deciding.decide(now)


def _some(fleet: Fleet, change: Callable[[NodeView], NodeView]) -> list[str]:
    """Nodes that it changes."""
    names = [name for name, node in sorted(fleet.nodes.items()) if change(node) != node]
    return names[:: max(1, len(names) // 20)]


def _busy(node: NodeView) -> NodeView:
    """A node that waits has other work: it stands elsewhere in the order."""
    return replace(node, usage=Usage(pods=(PodUse(pod_uid="work", gpus=8),)))


def _away(node: NodeView) -> NodeView:
    """It is not Ready: the budget is another one for all."""
    return replace(node, ready=False)


def _heard(node: NodeView) -> NodeView:
    """Of a node in flight, its agents are heard."""
    if node.lease is None:
        return node
    parts = {
        name: replace(part, silent_at=part.silent_at + 60) for name, part in node.components.items()
    }
    return replace(node, components=parts)


_CHANGES: dict[str, Callable[[NodeView], NodeView]] = {
    "a node's work": _busy,
    "a node that is not Ready": _away,
    "a beat of a node in flight": _heard,
}


def _midway() -> tuple[Fleet, Instant]:
    """A fleet of which half is done; of the rest, those are under way that may be."""
    plans = [
        StageNodeSpec(name=f"gpu-{n:05}", pool=_POOL, target="old" if n % 2 else "new")
        for n in range(COUNT)
    ]
    stage = Stage([_pool()], plans, world=SteadyWorld(jitter=0.5), start=1.8e9, journalled=False)
    deciding = Decider(stage.fleet())
    until = stage.now + SECONDS_IN
    while stage.now < until:
        news = deciding.decide(stage.instant())
        stage.carry_out(news, no_longer_waiting=news.no_longer_waiting)
        stage.run_until(stage.now + 0.5)
        deciding.update(*stage.pop_view_update())
    stage.carry_out(deciding.decide(stage.instant()))
    return stage.fleet(), stage.instant()


def _pool() -> PoolView:
    builds = {
        target: {_VARIANT: Build(label=f"label-{target}", install_digest=f"install-{target}")}
        for target in ("old", "new")
    }
    return PoolView(
        key=_POOL,
        uid="uid",
        target="new",
        builds=builds,
        upgrade=UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=0),
        rollout=RolloutView(uid="rollout", revision="1", status=RolloutStatus(epoch=1)),
    )
