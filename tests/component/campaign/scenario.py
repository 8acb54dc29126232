"""What a seed stands for: machines, work on them, faults on every seam, and when. Data.

The same seed is the same scenario everywhere. Each kind of fault is drawn by a random of its own,
so that one more kind changes none of the others.
"""

from random import Random
from typing import Final

import msgspec

from libs.forecast.world import ProcessEnd, SteadyWorld, TimeSpan, ValidationEnd, WorldOverride
from libs.testing.bus import BusFaults
from tests.component.campaign.action_kinds import ALL_ACTIONS

OLD, NEW = "570.86.15", "580.95.05"
ACTS_FROM: Final = 8.0
PATCHED: Final = (45.0, 95.0)
"""Seconds from the start until a person wants another driver: before or after all is up."""
ACTS_UNTIL: Final = 180.0


class ScheduledAction(msgspec.Struct, frozen=True, kw_only=True):
    """Something that befalls the system at a moment."""

    at: float
    what: str
    node: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.what, self.node, f"{self.value:g}" * bool(self.value))))


class ApiFaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """How often requests of ours to the API server go wrong, each in its way."""

    conflict: float = 0.0
    busy: float = 0.0
    broken: float = 0.0
    hang: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    astray: float = 0.0
    stale: float = 0.0


class GpuWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who computes on a node."""

    name: str
    node: str
    gpus: int


class CampaignScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One story before it is told."""

    seed: int
    nodes: tuple[str, ...]
    max_unavailable: str
    parallel: int
    patched_at: float
    workloads: tuple[GpuWorkload, ...] = ()
    acts: tuple[ScheduledAction, ...] = ()
    bus: BusFaults = BusFaults()
    api_faults: ApiFaultRates = ApiFaultRates()
    overrides: tuple[WorldOverride, ...] = ()

    @property
    def calm(self) -> bool:
        """Whether nothing at all goes wrong in it."""
        quiet = self.bus == BusFaults() and self.api_faults == ApiFaultRates()
        return quiet and not self.acts and not self.overrides

    @property
    def model(self) -> SteadyWorld:
        """A quick world: what a seed is about happens between the steps, not during them."""
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
    """What this seed stands for; every sixteenth is calm."""
    random = Random(f"{seed}/ground")
    many = random.choice((*(3,) * 14, 4, 4, 4, 5, 6, 8))
    nodes = tuple(f"n{number}" for number in range(1, many + 1))
    made = CampaignScenario(
        seed=seed,
        nodes=nodes,
        max_unavailable=random.choice(("1", "1", "2", "50%")),
        parallel=random.choice((1, 2, 0)),
        patched_at=round(random.uniform(*PATCHED), 2),
        workloads=_works(random, nodes),
    )
    if seed % 16 == 0:
        return made
    return msgspec.structs.replace(
        made,
        acts=_acts(seed, nodes),
        bus=_bus(Random(f"{seed}/bus")),
        api_faults=_strikes(Random(f"{seed}/api")),
        overrides=(
            *_oddities(Random(f"{seed}/world"), nodes),
            *_lingering(Random(f"{seed}/lingering"), nodes),
        ),
    )


def _works(random: Random, nodes: tuple[str, ...]) -> tuple[GpuWorkload, ...]:
    return tuple(
        GpuWorkload(name=f"train-{node}", node=node, gpus=random.choice((1, 2, 8)))
        for node in nodes
        if random.random() < 0.5
    )


def _bus(random: Random) -> BusFaults:
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


def _strikes(random: Random) -> ApiFaultRates:
    if random.random() < 0.5:
        return ApiFaultRates()
    names = ApiFaultRates.__struct_fields__
    return ApiFaultRates(**{name: random.choice((0.0, 0.0, 0.03, 0.15)) for name in names})


def _oddities(random: Random, nodes: tuple[str, ...]) -> tuple[WorldOverride, ...]:
    made: list[WorldOverride] = []
    for node in nodes:
        if random.random() < 0.8:
            continue
        takes = random.uniform(1.0, 20.0)
        fails, hangs = ProcessEnd(takes, 1), ProcessEnd(None)
        made.append(
            random.choice(
                (
                    WorldOverride(node=node, load=fails, first_attempts=1),
                    WorldOverride(node=node, load=fails, first_attempts=5),
                    WorldOverride(node=node, unload=fails, first_attempts=2),
                    WorldOverride(
                        node=node, validation=ValidationEnd(takes, "cuda"), first_attempts=1
                    ),
                    WorldOverride(
                        node=node, validation=ValidationEnd(takes, "driver"), first_attempts=3
                    ),
                    WorldOverride(
                        node=node, container="nvidia-driver-ctr", run=fails, first_attempts=2
                    ),
                    # A driver may take half an hour to start: dear to play, so it is rare.
                    WorldOverride(
                        node=node, load=hangs if random.random() < 0.1 else fails, first_attempts=1
                    ),
                )
            )
        )
    return tuple(made)


def _lingering(random: Random, nodes: tuple[str, ...]) -> tuple[WorldOverride, ...]:
    """Drivers whose container is long about its end, on one node in a few seeds."""
    if random.random() < 0.8:
        return ()
    takes = TimeSpan(random.uniform(5.0, 25.0))
    return (WorldOverride(node=random.choice(nodes), container="nvidia-driver-ctr", stop=takes),)


def _acts(seed: int, nodes: tuple[str, ...]) -> tuple[ScheduledAction, ...]:
    often = Random(f"{seed}/often").choice((0.05, 0.12, 0.25))
    made: list[ScheduledAction] = []
    for what, kind in ALL_ACTIONS.items():
        random = Random(f"{seed}/{what}")
        if random.random() >= often * kind.often:
            continue
        for _ in range(random.choice((1, kind.most))):
            at = round(random.uniform(ACTS_FROM, ACTS_UNTIL), 2)
            node = random.choice(nodes) if kind.on_node else ""
            value = round(random.uniform(*kind.values), 1)
            made.append(ScheduledAction(at=at, what=what, node=node, value=value))
    return tuple(sorted(made, key=lambda act: (act.at, act.what)))
