"""Which tests run after one another on one worker, and in what order: the plan of a run.

Grounds take turns. A heavy ground (real nodes, a control plane, a guest) has a worker to itself
from its first test to its last, and is ended then. Only so many stand at once as the machine bears:
on two cores one, for two pairs of nodes starve each other until their leases expire. Beside it,
simulated tests use the cores that a ground leaves idle, for it waits most of the time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import pytest

MARKER: Final = "together"
"""The name of the marker that says which tests run after one another on one worker."""
CORES_PER_HEAVY_GROUND: Final = 2
MOST_TESTS_IN_A_UNIT: Final = 12
"""Of a file whose tests share nothing: few, so that no worker has many left at the end."""


class GroundKind(Enum):
    """What is real below a test. Those of one ground run together, the longest first."""

    NODES = "real nodes"
    CONTROL_PLANE = "control plane"
    INSTALLATIONS = "installations on real nodes"
    NODE_UPGRADES = "upgrades on real nodes"
    GUEST = "guest"
    VENDOR = "NVIDIA's driver in a guest"
    DOCKER = "Docker"
    PROMETHEUS = "Prometheus"
    CHROMIUM = "Chromium"
    UPGRADES = "upgrades on a control plane"
    """Mostly waits for leases to expire, minutes long."""

    @property
    def is_heavy(self) -> bool:
        """Return whether it takes much of a core while it stands; the others wait, or are quick."""
        return self not in (
            GroundKind.DOCKER,
            GroundKind.PROMETHEUS,
            GroundKind.CHROMIUM,
            GroundKind.UPGRADES,
        )

    def marker(self) -> pytest.MarkDecorator:
        return getattr(pytest.mark, MARKER)(self.value)


@dataclass(frozen=True, slots=True)
class Unit:
    """Tests that run after one another, by their places in the collection."""

    name: str
    """The ground, the name that its tests share, or the file."""
    tests: tuple[int, ...]
    ground: GroundKind | None = None

    @property
    def is_heavy(self) -> bool:
        return self.ground is not None and self.ground.is_heavy


@dataclass(slots=True)
class Plan:
    """The units that no worker has yet, and the heavy ones that run."""

    units: deque[Unit]
    heavy_at_once: int
    running: dict[int, Unit] = field(default_factory=dict[int, Unit])
    """By worker."""

    def next(self, worker: int) -> Unit | None:
        """Return what a worker does next; nothing when all that is left has to wait its turn."""
        self.running.pop(worker, None)
        heavy = sum(unit.is_heavy for unit in self.running.values())
        for unit in self.units:
            if not unit.is_heavy or heavy < self.heavy_at_once:
                self.units.remove(unit)
                self.running[worker] = unit
                return unit
        return None

    def give_back(self, worker: int, *, done: int) -> None:
        """Let another worker do what is left of a unit after its first tests."""
        unit = self.running.pop(worker, None)
        if unit is not None and unit.tests[done:]:
            self.units.appendleft(Unit(unit.name, unit.tests[done:], unit.ground))


def plan_of(items: Sequence[pytest.Item], *, cores: int) -> Plan:
    """Return the plan: grounds first, then what else is marked, then files as they come."""
    marked: dict[str, list[int]] = {}
    files: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        name = together(item)
        (files if name is None else marked).setdefault(name or _file(item), []).append(place)
    order = [ground.value for ground in GroundKind]
    names = sorted(marked, key=lambda name: order.index(name) if name in order else len(order))
    units = [Unit(name, tuple(marked[name]), _ground(name)) for name in names]
    for name, places in files.items():
        size = len(places) if _share(items[places[0]]) else MOST_TESTS_IN_A_UNIT
        units += [
            Unit(name, tuple(places[first : first + size])) for first in range(0, len(places), size)
        ]
    return Plan(deque(units), heavy_at_once=max(1, cores // CORES_PER_HEAVY_GROUND))


def together(item: pytest.Item) -> str | None:
    """Return the name that an item shares with those that it runs together with."""
    marker = item.get_closest_marker(MARKER)
    return None if marker is None else str(marker.args[0])


def ground_of(item: pytest.Item) -> GroundKind | None:
    """Return the ground that an item stands on; none if it is simulated."""
    return _ground(together(item) or "")


def _ground(name: str) -> GroundKind | None:
    return next((ground for ground in GroundKind if ground.value == name), None)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _share(item: pytest.Item) -> bool:
    """Return whether the tests of a file share a fixture, which each unit would make anew."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return False
    return any(
        definition.scope in ("module", "class") and definition.baseid
        for definitions in info.name2fixturedefs.values()
        for definition in definitions
    )
