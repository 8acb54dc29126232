"""The scenario of a seed: machines, workloads, faults and their times.

Each kind of fault has a random source of its own, so that adding a kind changes none of the others.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import Final

import msgspec

from libs.forecast.world import ProcessEnd, TimeSpan, ValidationEnd
from libs.testing.bus import BusFaults
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.component.campaign.actions import ALL_ACTIONS, COMMON_ACTIONS
from tests.component.campaign.mig_actions import MIG_ACTIONS
from tests.component.campaign.user_actions import ScheduledAction

ACTS_FROM: Final = 8.0
PATCHED: Final = (45.0, 95.0)
"""Seconds from the start until the version changes, before or after the first rollout ends."""
ACTS_UNTIL: Final = 180.0
UNPROVED: Final = (100.0, 130.0)
"""Seconds from the start until a proof is withdrawn in a scenario that has nothing else."""

MIG_FROM: Final = 1000
"""The first seed in which people divide GPUs; the scenarios of earlier ones are older than MIG."""


class ApiFaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities of faults of our requests to the API server."""

    conflict: float = 0.0
    busy: float = 0.0
    broken: float = 0.0
    hang: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    astray: float = 0.0
    stale: float = 0.0


class GpuWorkload(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    node: str
    gpus: int


class CampaignScenario(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    nodes: tuple[str, ...]
    max_unavailable: str
    parallel: int
    patched_at: float
    workloads: tuple[GpuWorkload, ...] = ()
    actions: tuple[ScheduledAction, ...] = ()
    bus: BusFaults = BusFaults()
    api_faults: ApiFaultRates = ApiFaultRates()
    overrides: tuple[WorldOverride, ...] = ()

    @property
    def calm(self) -> bool:
        """Return whether the scenario has no faults and actions."""
        quiet = self.bus == BusFaults() and self.api_faults == ApiFaultRates()
        return quiet and not self.actions and not self.overrides

    @property
    def model(self) -> SteadyWorld:
        """A fast world: the seed matters between the steps, not during them."""
        return SteadyWorld(
            seed=self.seed,
            jitter=0.6,
            overrides=self.overrides,
            pull_seconds=1.0,
            boot_seconds=30.0,
            unload_seconds=2.0,
            load_seconds=6.0,
            validation_seconds=3.0,
        )


def scenario(seed: int) -> CampaignScenario:
    """Return the scenario of a seed; every sixteenth is calm.

    In another sixteenth, nothing happens but that a proof is withdrawn at the gate: among other
    faults the moment in which the gate could open wrongly is often missed.
    """
    random = Random(f"{seed}/ground")
    count = random.choice((*(3,) * 14, 4, 4, 4, 5, 6, 8))
    nodes = tuple(f"n{number}" for number in range(1, count + 1))
    result = CampaignScenario(
        seed=seed,
        nodes=nodes,
        max_unavailable=random.choice(("1", "1", "2", "50%")),
        parallel=random.choice((1, 2, 0)),
        patched_at=round(random.uniform(*PATCHED), 2),
        workloads=_workloads(random, nodes),
    )
    if seed % 16 == 0:
        return result
    if seed % 16 == 8:
        return msgspec.structs.replace(result, actions=(_unprove(seed, nodes),))
    return msgspec.structs.replace(
        result,
        actions=_sorted(
            (
                *_actions(seed, nodes),
                *_guard(seed, result.patched_at),
                *(_mig_actions(seed, nodes) if divides(seed) else ()),
            )
        ),
        bus=_bus_faults(Random(f"{seed}/bus")),
        api_faults=_api_fault_rates(Random(f"{seed}/api")),
        overrides=(
            *_node_overrides(Random(f"{seed}/world"), nodes),
            *_slow_stop(Random(f"{seed}/lingering"), nodes),
        ),
    )


def _workloads(random: Random, nodes: tuple[str, ...]) -> tuple[GpuWorkload, ...]:
    return tuple(
        GpuWorkload(name=f"train-{node}", node=node, gpus=random.choice((1, 2, 8)))
        for node in nodes
        if random.random() < 0.5
    )


def _bus_faults(random: Random) -> BusFaults:
    if random.random() < 0.4:
        return BusFaults()

    def rate(*rates: float) -> float:
        return random.choice((0.0, *rates))

    drops = random.choice((None, None, (60.0, 600.0)))
    delay = random.choice(((0.01, 1.0), (0.01, 1.0), (1.0, 20.0)))
    return BusFaults(
        lost=rate(0.02, 0.2),
        repeated=rate(0.02, 0.2),
        reordered=rate(0.02, 0.2),
        delayed=rate(0.02, 0.1) if delay[1] < 2.0 else rate(0.002, 0.01),
        delay=delay,
        call_lost=rate(0.01, 0.1),
        answer_lost=rate(0.01, 0.1),
        between_drops=drops,
    )


def _api_fault_rates(random: Random) -> ApiFaultRates:
    if random.random() < 0.5:
        return ApiFaultRates()
    names = ApiFaultRates.__struct_fields__
    return ApiFaultRates(**{name: random.choice((0.0, 0.0, 0.03, 0.15)) for name in names})


def _node_overrides(random: Random, nodes: tuple[str, ...]) -> tuple[WorldOverride, ...]:
    result: list[WorldOverride] = []
    for node in nodes:
        if random.random() < 0.8:
            continue
        seconds = random.uniform(1.0, 20.0)
        failure, hang = ProcessEnd(seconds, 1), ProcessEnd(None)
        cuda, driver = ValidationEnd(seconds, "cuda"), ValidationEnd(seconds, "driver")
        override = partial(WorldOverride, node=node)
        overrides = (
            override(load=failure, first_attempts=1),
            override(load=failure, first_attempts=5),
            override(unload=failure, first_attempts=2),
            override(validation=cuda, first_attempts=1),
            override(validation=driver, first_attempts=3),
            override(container="nvidia-driver-ctr", run=failure, first_attempts=2),
            # A driver may take half an hour to start: costly to play, so it is rare.
            override(load=hang if random.random() < 0.1 else failure, first_attempts=1),
        )
        result.append(random.choice(overrides))
    return tuple(result)


def _slow_stop(random: Random, nodes: tuple[str, ...]) -> tuple[WorldOverride, ...]:
    """Make one node's driver container slow to stop, in a few seeds."""
    if random.random() < 0.8:
        return ()
    seconds = TimeSpan(random.uniform(5.0, 25.0))
    return (WorldOverride(node=random.choice(nodes), container="nvidia-driver-ctr", stop=seconds),)


def _actions(seed: int, nodes: tuple[str, ...]) -> tuple[ScheduledAction, ...]:
    often = Random(f"{seed}/often").choice((0.05, 0.12, 0.25))
    result: list[ScheduledAction] = []
    for what, kind in COMMON_ACTIONS.items():
        random = Random(f"{seed}/{what}")
        if random.random() >= often * kind.often:
            continue
        for _ in range(random.choice((1, kind.most))):
            at = round(random.uniform(ACTS_FROM, ACTS_UNTIL), 2)
            node = random.choice(nodes) if kind.on_node else ""
            value = round(random.uniform(*kind.values), 1)
            result.append(ScheduledAction(at=at, kind=what, node=node, value=value))
    return _sorted(result)


def divides(seed: int) -> bool:
    """Return whether people divide GPUs in this seed."""
    return seed >= MIG_FROM and seed % 2 == 1


def _mig_actions(seed: int, nodes: tuple[str, ...]) -> Iterator[ScheduledAction]:
    random = Random(f"{seed}/mig")
    for node in nodes:
        if random.random() < 0.3:
            continue
        for what, kind in MIG_ACTIONS.items():
            for _ in range(random.randint(what == "divide", kind.most)):
                at = round(random.uniform(ACTS_FROM, ACTS_UNTIL), 2)
                value = round(random.uniform(*kind.values), 1)
                yield ScheduledAction(at=at, kind=what, node=node, value=value)


def _unprove(seed: int, nodes: tuple[str, ...]) -> ScheduledAction:
    random = Random(f"{seed}/unprove")
    return ScheduledAction(
        at=round(random.uniform(*UNPROVED), 2),
        kind="unprove-at-gate",
        node=random.choice(nodes),
        value=round(random.uniform(*ALL_ACTIONS["unprove-at-gate"].values), 1),
    )


def _guard(seed: int, patched_at: float) -> tuple[ScheduledAction, ...]:
    """Refuse evictions just when the workloads are to be evicted, in some seeds."""
    random = Random(f"{seed}/guard")
    if random.random() >= 0.25:
        return ()
    at, seconds = round(patched_at + 0.5, 2), round(random.uniform(30.0, 80.0), 1)
    return (ScheduledAction(at=at, kind="guard-pods", value=seconds),)


def _sorted(actions: Iterable[ScheduledAction]) -> tuple[ScheduledAction, ...]:
    return tuple(sorted(actions, key=lambda act: (act.at, act.kind)))
