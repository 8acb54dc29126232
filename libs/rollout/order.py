"""The order in which candidates start (docs/states.md#d-4), kept sorted incrementally."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from libs.rollout.decision import Candidate
from libs.rollout.node_writes import current_record
from libs.rollout.views.node import NodeView


class Rank(NamedTuple):
    """Sort key of a candidate, smallest first. No two nodes have the same."""

    upgrade_last: bool
    """The node runs NATS, our cluster roles or the control plane."""
    backed_off: bool
    """The node was released with a back-off."""
    healthy: bool
    """The node did not fail on an earlier target."""
    busy: bool
    gpu_pods: int
    driver: tuple[int, ...]
    """Version of its driver: the oldest first."""
    name: str


def rank(node: NodeView, candidate: Candidate) -> Rank:
    record, usage, loaded = current_record(node), node.usage, node.loaded
    pods = 0 if usage is None else len(usage.pods)
    return Rank(
        node.upgrade_last,
        record is not None and record.back_off_seconds > 0,
        not candidate.outside,
        usage is None or pods > 0 or usage.host_processes > 0,
        pods,
        () if loaded is None else _version(loaded.version),
        node.name,
    )


@lru_cache(maxsize=256)
def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split("."))


_T = TypeVar("_T", Rank, str, tuple[float, str])


class SortedList(Generic[_T]):
    """A sorted list. Added items are merged when the list is read."""

    def __init__(self) -> None:
        self._kept: list[_T] = []
        self._fresh: list[_T] = []

    def __iter__(self) -> Iterator[_T]:
        self._merge()
        return iter(self._kept)

    def add(self, item: _T) -> None:
        self._fresh.append(item)

    def remove(self, item: _T) -> None:
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
    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}
        self._sorted: SortedList[Rank] = SortedList()

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._sorted)

    def names(self) -> list[str]:
        return list(self._ranks)

    def put(self, rank: Rank) -> None:
        previous = self._ranks.get(rank.name)
        if previous == rank:
            return
        if previous is not None:
            self._sorted.remove(previous)
        self._ranks[rank.name] = rank
        self._sorted.add(rank)

    def drop(self, name: str) -> None:
        self._sorted.remove(self._ranks.pop(name))


class NodeReasons:
    """Node names with a reason each, in order of name."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._sorted: SortedList[str] = SortedList()

    def __len__(self) -> int:
        return len(self._reasons)

    def put(self, name: str, reason: str) -> None:
        if name not in self._reasons:
            self._sorted.add(name)
        self._reasons[name] = reason

    def drop(self, name: str) -> None:
        del self._reasons[name]
        self._sorted.remove(name)

    def all(self) -> dict[str, str]:
        return dict(self._reasons)

    def summary(self, most: int = 3) -> str:
        names = ", ".join(f"{name} ({self._reasons[name]})" for name in islice(self._sorted, most))
        others = len(self._reasons) - most
        return f"{names} and {others} more" if others > 0 else names
