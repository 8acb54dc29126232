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

TITLE = "5,000 nodes in mid-rollout: full and incremental decisions, beside decoding (CPU seconds)"
ROUNDS = 15
SECONDS_IN = 55.0
WHOLE = 1.0
"""The budget of a full decision, as a multiple of the time of decoding."""
ONE = 1 / 300
"""The budget of a decision after one change, as a multiple of the time of decoding."""

_POOL = "nvidiadriver-all"
_VARIANT = "ubuntu24.04"


async def run(report: BenchReport) -> None:
    """Measure decisions and decoding in turns, within one run."""
    fleet, now = _midway()
    bodies = pages()
    decoding: list[float] = []
    whole: list[float] = []
    for _ in range(ROUNDS):
        decoding.append(_cpu_seconds(lambda: _decoded(bodies)))
        whole.append(_cpu_seconds(lambda: decide(fleet, now)))
    waits = decide(fleet, now).waits
    report.figure("nodes decoded", min(decoding) * 1000, "ms", note=f"{COUNT} of them")
    report.figure("full decision", min(whole) * 1000, "ms", note=f"{len(waits)} wait")
    report.at_most("full decision, in time of decoding", ratio(whole, decoding), WHOLE, "x")
    for name, change in _CHANGES.items():
        ours, decoding_times = _measure_change(fleet, now, change, bodies)
        share = ratio(ours, decoding_times) / ONE
        report.figure(f"one change: {name}", min(ours) * 1e6, "us")
        report.at_most("of a 300th of the time of decoding", share, 1.0, "x")


def _cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _decoded(bodies: Sequence[bytes]) -> int:
    return sum(len(decode_page(body, NODES, path="/").items) for body in bodies)


def _measure_change(
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
        changed, original = change(fleet.nodes[name]), fleet.nodes[name]
        seconds = [
            _cpu_seconds(lambda view=view: _decide_change(decider, view, now))
            for view in (changed, original) * 2
        ]
        times += seconds[2:]
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


def _not_ready(node: NodeView) -> NodeView:
    """Make a node NotReady, which changes the budget of all."""
    return replace(node, ready=False)


def _heartbeat(node: NodeView) -> NodeView:
    """Renew the heartbeats of the agents of a node in flight."""
    if node.lease is None:
        return node
    components = {
        name: replace(component, silent_at=component.silent_at + 60)
        for name, component in node.components.items()
    }
    return replace(node, components=components)


_CHANGES: dict[str, Callable[[NodeView], NodeView]] = {
    "the workload of a node": _busy,
    "a node that is not Ready": _not_ready,
    "a heartbeat of a node in flight": _heartbeat,
}


def _midway() -> tuple[Fleet, Instant]:
    """Return a fleet in mid-rollout: half is done, and as much of the rest as allowed in flight."""
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
