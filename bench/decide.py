"""The cost of a decision, compared with decoding its Nodes."""

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from bench.recorded import NODES as COUNT
from bench.recorded import pages
from bench.report import BenchReport, ratio
from libs.contracts.reports import PodUse, Usage
from libs.contracts.rollout import RolloutStatus
from libs.kube.reads import decode_page
from libs.kube.resources import NODES
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.decide import Decider, decide
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView, RolloutView
from libs.testing.stage import SimulatedStage, StageNodeSpec
from libs.testing.stage.worlds import SteadyWorld

TITLE = "5,000 nodes in mid-rollout: decided anew and kept, beside decoding them (CPU seconds)"
ROUNDS = 15
SECONDS_IN = 55.0
WHOLE = 1.0
"""The budget of a full decision, as a multiple of the time of decoding."""
ONE = 1 / 300
"""The budget of a decision after one change, as a multiple of the time of decoding."""

_POOL = "nvidiadriver-all"
_VARIANT = "ubuntu24.04"


async def run(report: BenchReport) -> None:
    """In turns, within one run."""
    fleet, now = _midway()
    bodies = pages()
    decoding: list[float] = []
    whole: list[float] = []
    for _ in range(ROUNDS):
        decoding.append(_cpu_seconds(lambda: _decoded(bodies)))
        whole.append(_cpu_seconds(lambda: decide(fleet, now)))
    waits = decide(fleet, now).waits
    report.figure("nodes decoded", min(decoding) * 1000, "ms", note=f"{COUNT} of them")
    report.figure("decided anew", min(whole) * 1000, "ms", note=f"{len(waits)} wait")
    report.at_most("whole, in time of decoding", ratio(whole, decoding), WHOLE, "x")
    for name, change in _CHANGES.items():
        ours, beside = _one(fleet, now, change, bodies)
        share = ratio(ours, beside) / ONE
        report.figure(f"one change: {name}", min(ours) * 1e6, "us")
        report.at_most("of a 300th of the time of decoding", share, 1.0, "x")


def _cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _decoded(bodies: Sequence[bytes]) -> int:
    return sum(len(decode_page(body, NODES, path="/").items) for body in bodies)


def _one(
    fleet: Fleet,
    now: Instant,
    change: Callable[[NodeView], NodeView],
    bodies: Sequence[bytes],
) -> tuple[list[float], list[float]]:
    """Measure changes of some nodes back and forth, and decoding of all nodes, in turns.

    The first changes after a decoding are not counted, because a service has warm caches.
    """
    decider = Decider(fleet)
    decider.decide(now)
    times: list[float] = []
    decoding: list[float] = []
    for name in _affected(fleet, change):
        decoding.append(_cpu_seconds(lambda: _decoded(bodies)))
        there, back = change(fleet.nodes[name]), fleet.nodes[name]
        took = [
            _cpu_seconds(lambda view=view: _decide_change(decider, view, now))
            for view in (there, back) * 2
        ]
        times += took[2:]
    return times, decoding


def _decide_change(decider: Decider, node: NodeView, now: Instant) -> None:
    decider.update([node])
    decider.decide(now)


def _affected(fleet: Fleet, change: Callable[[NodeView], NodeView]) -> list[str]:
    """Return a sample of the nodes that a change affects."""
    names = [name for name, node in sorted(fleet.nodes.items()) if change(node) != node]
    return names[:: max(1, len(names) // 20)]


def _busy(node: NodeView) -> NodeView:
    """Change the workload of a waiting node, which changes the order of upgrades."""
    return replace(node, usage=Usage(pods=(PodUse(pod_uid="work", gpus=8),)))


def _away(node: NodeView) -> NodeView:
    """Make a node NotReady, which changes the budget of all."""
    return replace(node, ready=False)


def _heartbeat(node: NodeView) -> NodeView:
    """Renew the heartbeats of the agents of a node in flight."""
    if node.lease is None:
        return node
    parts = {
        name: replace(part, silent_at=part.silent_at + 60) for name, part in node.components.items()
    }
    return replace(node, components=parts)


_CHANGES: dict[str, Callable[[NodeView], NodeView]] = {
    "a node's work": _busy,
    "a node that is not Ready": _away,
    "a beat of a node in flight": _heartbeat,
}


def _midway() -> tuple[Fleet, Instant]:
    """Return a fleet in mid-rollout: half is done, and the allowed rest is in flight."""
    plans = [
        StageNodeSpec(name=f"gpu-{n:05}", pool=_POOL, target="old" if n % 2 else "new")
        for n in range(COUNT)
    ]
    stage = SimulatedStage(
        [_pool()], plans, world=SteadyWorld(jitter=0.5), start=1.8e9, journalled=False
    )
    decider = Decider(stage.fleet())
    until = stage.now + SECONDS_IN
    while stage.now < until:
        decision = decider.decide(stage.instant())
        stage.carry_out(decision, no_longer_waiting=decision.no_longer_waiting)
        stage.run_until(stage.now + 0.5)
        decider.update(*stage.pop_view_update())
    stage.carry_out(decider.decide(stage.instant()))
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
