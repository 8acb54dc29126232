"""The scenario of the demo, as data: what people do, and when. Pure.

A fleet comes up, and people start to work on it. The administrator asks for plans, then for another
driver in one pool, where all goes as planned. In the other pool the driver does not load: the
rollout halts until the driver is repaired and people release it. Then a node waits for a job,
another for a PodDisruptionBudget, and one is cordoned by a person.

A fleet of one pool gets a driver that loads.

A cue is carried out once its condition has held for a while. A viewer may do any of this, or
something else, meanwhile: a cue that has become moot is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from demo.actions import (
    Action,
    AnnounceRelease,
    AskPlans,
    Cordon,
    CreateJob,
    CreateService,
    FinishJob,
    Release,
    RepairDriver,
    Retry,
    Scale,
    SetVersion,
)
from demo.fleet import SERVING, Fleet, FleetPool
from demo.observed import Observed, SeenPool
from demo.world import TOLD_JOB
from libs.contracts.node import UpgradeState
from libs.contracts.rollout import RolloutPhase
from libs.contracts.waits import WaitCode

OLD, NEW, NEXT = "570.86.15", "580.95.05", "590.48.01"
CHAT, SEARCH = "chat", "search"
"""Services: the first has a PodDisruptionBudget."""
_FEWEST_WITH_CORDON: Final = 3
_FEWEST_WITH_BUDGET: Final = 4
"""Nodes of a pool, so that a second pod of the service finds a place beside the first."""
_LOOK_SECONDS: Final = 4.0
"""Seconds for which a viewer sees a situation before somebody ends it."""
_RELEASE_SECONDS: Final = 15.0
"""Seconds in which a viewer may release the halt before the demo does."""
_RETRY_SECONDS: Final = 3.0
"""Seconds within which the scheduler retries a failed node by itself, if it may."""
_REPORT_SECONDS: Final = 3.0
"""Seconds in which agents report the pods that have begun to use GPUs."""


Condition = Callable[[Observed], bool]


class Cue(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody does once a condition has held for a while."""

    name: str
    title: str = ""
    after: tuple[str, ...] = ()
    """The cues that must be carried out or moot before."""
    when: Condition
    pause: float = 0.0
    """Seconds for which the condition must have held."""
    moot: Condition | None = None
    """When the cue is left out: somebody else did it, or changed what it is about."""
    moot_says: str = ""
    do: tuple[Action, ...]


Script = tuple[Cue, ...]


class Progress(msgspec.Struct, frozen=True):
    """How far a script is."""

    settled: frozenset[str] = frozenset()
    """Cues that were carried out or left out."""
    since: Mapping[str, float] = {}
    """Since when the conditions of cues hold."""


class Turn(msgspec.Struct, frozen=True):
    """What is to be done now."""

    progress: Progress
    due: tuple[Cue, ...] = ()
    moot: tuple[Cue, ...] = ()


def next_turn(
    script: Script, progress: Progress, observed: Observed, *, now: float, speed: float = 1.0
) -> Turn:
    """Return the cues that are due, and those that have become moot."""
    since: dict[str, float] = {}
    due: list[Cue] = []
    moot: list[Cue] = []
    for cue in script:
        if cue.name in progress.settled or not progress.settled.issuperset(cue.after):
            continue
        if cue.when(observed):
            since[cue.name] = began = progress.since.get(cue.name, now)
            if now - began >= cue.pause / speed:
                due.append(cue)
        elif cue.moot is not None and cue.moot(observed):
            moot.append(cue)
    settled = progress.settled.union(cue.name for cue in (*due, *moot))
    return Turn(Progress(settled, since), tuple(due), tuple(moot))


def is_over(script: Script, progress: Progress, observed: Observed) -> bool:
    """Whether the script is at its end, and all nodes have what their policies want."""
    return progress.settled.issuperset(cue.name for cue in script) and all(
        pool.is_complete for pool in observed.pools.values()
    )


def make_script(fleet: Fleet) -> Script:
    """Return the script for a fleet: small ones have no place for each scene."""
    training, serving = fleet.pools[0], fleet.pool(SERVING)
    has_budget = len(training.nodes) >= _FEWEST_WITH_BUDGET
    cues = [*_beginning(fleet, training, serving, has_budget=has_budget)]
    if serving is not None:
        cues += _bad_driver(training, proven_in=serving)
    cues += _held_up(training, has_budget=has_budget)
    cues.append(
        Cue(
            name="next plan",
            title="The administrator asks what the next upgrade would take.",
            after=tuple(cue.name for cue in cues),
            when=lambda seen: all(pool.is_complete for pool in seen.pools.values()),
            do=(AskPlans(fleet.pools, NEXT),),
        )
    )
    return tuple(cues)


def _beginning(
    fleet: Fleet, training: FleetPool, serving: FleetPool | None, *, has_budget: bool
) -> Iterator[Cue]:
    first = serving or training
    workloads = (TOLD_JOB, *((CHAT,) if has_budget else ()), *((SEARCH,) if serving else ()))
    yield Cue(
        name="workloads",
        title="People start to work on the fleet.",
        when=lambda seen: all(pool.is_complete for pool in seen.pools.values()),
        do=tuple(_workloads(training, serving, has_budget=has_budget)),
    )
    yield Cue(
        name="plan",
        title="The administrator asks what an upgrade would take.",
        after=("workloads",),
        when=lambda seen: all(map(seen.is_running, workloads)),
        pause=_REPORT_SECONDS,
        moot=_was_changed(first, from_version=OLD),
        do=(AskPlans(fleet.pools, NEW),),
    )
    yield Cue(
        name="good driver",
        title=f"The administrator asks for driver {NEW} in pool {first.name}."
        " One node has to prove it before others start.",
        after=("plan",),
        when=_wants(first, OLD),
        moot=_was_changed(first, from_version=OLD),
        moot_says=f"leaves pool {first.name} to whoever has set its version",
        do=(SetVersion(first, NEW),),
    )


def _held_up(training: FleetPool, *, has_budget: bool) -> Iterator[Cue]:
    """Yield the ends of waits in the pool with the job and the budget."""
    yield Cue(
        name="job",
        title=f"The job {TOLD_JOB} has finished: its node goes on.",
        after=("good driver",),
        when=lambda seen: seen.waits_for(WaitCode.JOBS, TOLD_JOB),
        pause=_LOOK_SECONDS,
        moot=_is_upgraded(training, with_nodes_of=TOLD_JOB),
        do=(FinishJob(TOLD_JOB),),
    )
    if has_budget:
        yield Cue(
            name="budget",
            title=f"The owners of {CHAT} start a second pod, so that the first one may go.",
            after=("good driver",),
            when=lambda seen: seen.waits_for(WaitCode.PDB, CHAT),
            pause=_LOOK_SECONDS,
            moot=_is_upgraded(training, with_nodes_of=CHAT),
            do=(Scale(CHAT, 2),),
        )


def _workloads(
    training: FleetPool, serving: FleetPool | None, *, has_budget: bool
) -> Iterator[Action]:
    if len(training.nodes) >= _FEWEST_WITH_CORDON:
        yield Cordon(training.nodes[-1])
    yield CreateJob(TOLD_JOB, training, gpus=4)
    if has_budget:
        yield CreateService(CHAT, training, gpus=2, has_budget=True)
    if serving is not None:
        yield CreateService(SEARCH, serving, gpus=2)


def _bad_driver(training: FleetPool, *, proven_in: FleetPool) -> Iterator[Cue]:
    def is_halted(seen: Observed) -> bool:
        return seen.pools[training.name].status.phase == RolloutPhase.HALTED

    yield Cue(
        name="bad driver",
        title=f"{NEW} is proven in pool {proven_in.name}. The administrator asks for it in pool"
        f" {training.name} too, where it does not load.",
        after=("good driver",),
        when=lambda seen: _wants(training, OLD)(seen) and _is_proven(seen.pools[proven_in.name]),
        pause=1.0,
        moot=_was_changed(training, from_version=OLD),
        moot_says=f"leaves pool {training.name} to whoever has set its version",
        do=(SetVersion(training, NEW, is_bad=True),),
    )
    yield Cue(
        name="repair",
        title=f"The rollout in {training.name} is halted: no other node tries this driver until"
        " people have released it.",
        after=("bad driver",),
        when=is_halted,
        moot=_was_changed(training, from_version=NEW),
        do=(RepairDriver(NEW), AnnounceRelease(training, _RELEASE_SECONDS)),
    )
    yield Cue(
        name="release",
        after=("repair",),
        when=is_halted,
        pause=_RELEASE_SECONDS,
        moot=lambda seen: not is_halted(seen),
        do=(Release(training),),
    )
    yield Cue(
        name="retry",
        after=("release",),
        when=lambda seen: not is_halted(seen) and bool(failed_nodes(seen, training)),
        pause=_RETRY_SECONDS,
        moot=lambda seen: not failed_nodes(seen, training),
        do=(Retry(training),),
    )


def failed_nodes(observed: Observed, pool: FleetPool) -> list[str]:
    """Return the nodes of a pool whose upgrade has failed."""
    failed = UpgradeState.UPGRADE_FAILED
    nodes = observed.nodes.values()
    return [each.name for each in nodes if each.pool == pool.name and each.state == failed]


def _wants(pool: FleetPool, version: str) -> Condition:
    return lambda seen: seen.pools[pool.name].wanted == version


def _was_changed(pool: FleetPool, *, from_version: str) -> Condition:
    """Whether somebody else has asked for another version in a pool."""
    return lambda seen: seen.pools[pool.name].wanted != from_version


def _is_upgraded(training: FleetPool, *, with_nodes_of: str) -> Condition:
    """Whether a pool is done, also where a workload runs: a viewer may keep that out for now."""

    def is_upgraded(seen: Observed) -> bool:
        found = seen.pools[training.name]
        nodes = [seen.nodes[name] for name in seen.nodes_of(with_nodes_of) if name in seen.nodes]
        is_done = all(node.state == UpgradeState.UPGRADE_DONE for node in nodes)
        return found.is_complete and found.wanted != OLD and is_done

    return is_upgraded


def _is_proven(pool: SeenPool) -> bool:
    """Whether a driver other than the first one is proven in a pool."""
    status = pool.status
    proven = status.phase in (RolloutPhase.PROVEN, RolloutPhase.COMPLETE)
    return proven and status.version not in ("", OLD)
