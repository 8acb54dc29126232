"""What a seed stands for: machines, work on them, faults on every seam, and when. Data.

The same seed is the same scenario everywhere. Each kind of fault is drawn by a random of its own,
so that one more kind changes none of the others.
"""

from random import Random
from typing import Final

import msgspec

from sluice.bus.local import Faults as BusFaults
from sluice.rollout.world import Ending, Oddity, Verdict

OLD, NEW = "570.86.15", "580.95.05"
ACTS_FROM: Final = 20.0
PATCHED: Final = (150.0, 260.0)
"""Seconds from the start until a person wants another driver: before or after all is up."""
ACTS_UNTIL: Final = 560.0


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Something that befalls the system at a moment."""

    at: float
    what: str
    node: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.what, self.node, f"{self.value:g}" * bool(self.value))))


class Strikes(msgspec.Struct, frozen=True, kw_only=True):
    """How often requests of ours to the API server go wrong, each in its way."""

    conflict: float = 0.0
    busy: float = 0.0
    broken: float = 0.0
    cut: float = 0.0
    late: float = 0.0


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who computes on a node."""

    name: str
    node: str
    gpus: int


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One story before it is told."""

    seed: int
    nodes: tuple[str, ...]
    max_unavailable: str
    parallel: int
    patched_at: float
    works: tuple[Work, ...] = ()
    acts: tuple[Act, ...] = ()
    bus: BusFaults = BusFaults()
    strikes: Strikes = Strikes()
    oddities: tuple[Oddity, ...] = ()

    @property
    def calm(self) -> bool:
        """Whether nothing at all goes wrong in it."""
        quiet = self.bus == BusFaults() and self.strikes == Strikes()
        return quiet and not self.acts and not self.oddities


def scenario(seed: int) -> Scenario:
    """What this seed stands for; every eighth is calm."""
    random = Random(f"{seed}/ground")
    nodes = tuple(f"n{number}" for number in range(1, random.choice((3, 3, 3, 4)) + 1))
    made = Scenario(
        seed=seed,
        nodes=nodes,
        max_unavailable=random.choice(("1", "1", "2", "50%")),
        parallel=random.choice((1, 2, 0)),
        patched_at=round(random.uniform(*PATCHED), 2),
        works=_works(random, nodes),
    )
    if seed % 8 == 0:
        return made
    return msgspec.structs.replace(
        made,
        acts=_acts(seed, nodes),
        bus=_bus(Random(f"{seed}/bus")),
        strikes=_strikes(Random(f"{seed}/api")),
        oddities=_oddities(Random(f"{seed}/world"), nodes),
    )


def _works(random: Random, nodes: tuple[str, ...]) -> tuple[Work, ...]:
    return tuple(
        Work(name=f"train-{node}", node=node, gpus=random.choice((1, 2, 8)))
        for node in nodes
        if random.random() < 0.5
    )


def _bus(random: Random) -> BusFaults:
    if random.random() < 0.4:
        return BusFaults()

    def rate(*rates: float) -> float:
        return random.choice((0.0, *rates))

    drops = random.choice((None, None, (60.0, 600.0)))
    return BusFaults(
        lost=rate(0.02, 0.2),
        repeated=rate(0.02, 0.2),
        reordered=rate(0.02, 0.2),
        delayed=rate(0.02, 0.1),
        call_lost=rate(0.01, 0.1),
        answer_lost=rate(0.01, 0.1),
        between_drops=drops,
    )


def _strikes(random: Random) -> Strikes:
    if random.random() < 0.5:
        return Strikes()
    names = Strikes.__struct_fields__
    return Strikes(**{name: random.choice((0.0, 0.0, 0.03, 0.15)) for name in names})


def _oddities(random: Random, nodes: tuple[str, ...]) -> tuple[Oddity, ...]:
    made: list[Oddity] = []
    for node in nodes:
        if random.random() < 0.75:
            continue
        takes = random.uniform(2.0, 40.0)
        made.append(
            random.choice(
                (
                    Oddity(node=node, load=Ending(takes, 1), attempts=1),
                    Oddity(node=node, load=Ending(None), attempts=1),
                    Oddity(node=node, unload=Ending(takes, 1), attempts=2),
                    Oddity(node=node, validation=Verdict(takes, "cuda"), attempts=1),
                    Oddity(node=node, validation=Verdict(takes, "driver"), attempts=8),
                    Oddity(node=node, load=Ending(takes, 1), attempts=5),
                )
            )
        )
    return tuple(made)


# What befalls them. By word: how many at most, on a node or not, and the range of a value.

_ACTS: Final[dict[str, tuple[int, bool, tuple[float, float]]]] = {
    "kill-scheduler": (3, False, (0.0, 0.0)),
    "cut-scheduler": (3, False, (0.0, 12.0)),
    "rival": (1, False, (0.0, 0.0)),
    "kill-driver-cluster": (1, False, (0.0, 0.0)),
    "kill-driver": (2, True, (0.0, 0.0)),
    "kill-validator": (2, True, (0.0, 0.0)),
    "kill-discovery": (1, True, (0.0, 0.0)),
    "lose-commands": (1, False, (0.0, 0.0)),
    "bus-away": (1, False, (2.0, 200.0)),
    "deaf": (1, True, (5.0, 250.0)),
    "drop-watches": (2, False, (0.0, 0.0)),
    "reboot": (1, True, (0.0, 0.0)),
    "delete-driver-pod": (1, True, (0.0, 0.0)),
    "cordon": (1, True, (0.0, 0.0)),
    "uncordon": (1, True, (0.0, 0.0)),
}
WORDS: Final = tuple(_ACTS)


def _acts(seed: int, nodes: tuple[str, ...]) -> tuple[Act, ...]:
    made: list[Act] = []
    for what, (most, on_node, values) in _ACTS.items():
        random = Random(f"{seed}/{what}")
        for _ in range(random.choice((0, 0, 1, most)) if random.random() < 0.5 else 0):
            at = round(random.uniform(ACTS_FROM, ACTS_UNTIL), 2)
            node = random.choice(nodes) if on_node else ""
            made.append(Act(at=at, what=what, node=node, value=round(random.uniform(*values), 1)))
    return tuple(sorted(made, key=lambda act: (act.at, act.what)))
