"""Whose turn it is first (docs/states.md#d-4), kept in order rather than sorted anew.

Must not know how many may start.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from libs.rollout.decision import Candidate
from libs.rollout.node_writes import current_record
from libs.rollout.views.node import NodeView


class Rank(NamedTuple):
    """The smallest comes first. No two nodes have the same."""

    upgrade_last: bool
    """It carries NATS, our cluster roles or the control plane."""
    backed_off: bool
    """It was released for the sake of others a while ago."""
    healthy: bool
    """It did not fail on an earlier target."""
    busy: bool
    gpu_pods: int
    driver: tuple[int, ...]
    """The version of its driver: the oldest first."""
    name: str


def rank(node: NodeView, candidate: Candidate) -> Rank:
    """Where it stands among those that could start."""
    record, use, loaded = current_record(node), node.usage, node.loaded
    pods = 0 if use is None else len(use.pods)
    return Rank(
        node.upgrade_last,
        record is not None and record.back_off_seconds > 0,
        not candidate.outside,
        use is None or pods > 0 or use.host_processes > 0,
        pods,
        () if loaded is None else _version(loaded.version),
        node.name,
    )


@lru_cache(maxsize=256)
def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split("."))


_T = TypeVar("_T", Rank, str, tuple[float, str])


class SortedList(Generic[_T]):
    """Things in their order. What is added is merged when somebody looks."""

    def __init__(self) -> None:
        self._kept: list[_T] = []
        self._fresh: list[_T] = []

    def __iter__(self) -> Iterator[_T]:
        self._merge()
        return iter(self._kept)

    def add(self, item: _T) -> None:
        """It is not there yet."""
        self._fresh.append(item)

    def remove(self, item: _T) -> None:
        """It is there."""
        self._merge()
        del self._kept[bisect_left(self._kept, item)]

    def _merge(self) -> None:
        if not self._kept:
            self._kept = sorted(self._fresh)
        else:
            for item in self._fresh:
                insort(self._kept, item)
        self._fresh = []


class RankedNodes:
    """Nodes by rank."""

    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}
        self._sorted: SortedList[Rank] = SortedList()

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._sorted)

    def names(self) -> list[str]:
        """Of all, in no order that means anything."""
        return list(self._ranks)

    def put(self, rank: Rank) -> None:
        """A node is to stand here."""
        had = self._ranks.get(rank.name)
        if had == rank:
            return
        if had is not None:
            self._sorted.remove(had)
        self._ranks[rank.name] = rank
        self._sorted.add(rank)

    def drop(self, name: str) -> None:
        """A node is not to stand here any more."""
        self._sorted.remove(self._ranks.pop(name))


class NodeReasons:
    """Names with a reason each, of which the first few can be told at any time."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        self._sorted: SortedList[str] = SortedList()

    def __len__(self) -> int:
        return len(self._why)

    def put(self, name: str, why: str) -> None:
        """It belongs here, for this reason."""
        if name not in self._why:
            self._sorted.add(name)
        self._why[name] = why

    def drop(self, name: str) -> None:
        """It does not belong here any more."""
        del self._why[name]
        self._sorted.remove(name)

    def all(self) -> dict[str, str]:
        """Each with its reason."""
        return dict(self._why)

    def summary(self, most: int = 3) -> str:
        """The first few, and how many more there are."""
        shown = ", ".join(f"{name} ({self._why[name]})" for name in islice(self._sorted, most))
        more = len(self._why) - most
        return f"{shown} and {more} more" if more > 0 else shown
