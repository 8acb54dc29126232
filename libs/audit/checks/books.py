"""The arithmetic of docs/states.md#harm for one pool and target, kept anew from what happened."""

from bisect import bisect_right

import msgspec


class Book(msgspec.Struct):
    """One pool and target."""

    pool: str
    target: str
    threshold: int
    allowed: list[tuple[float, int]]
    """How many failures people accepted, and from when on; the first from the beginning."""
    in_flight: set[str] = msgspec.field(default_factory=set[str])
    beside: set[str] = msgspec.field(default_factory=set[str])
    """In flight too, but failed on an earlier target: outside the counts, one at a time."""
    failed: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Node uids, each with the place where it failed first; in that order."""
    validated: set[str] = msgspec.field(default_factory=set[str])

    @property
    def is_proven(self) -> bool:
        """Whether the budget alone bounds starts."""
        return len(self.validated) >= self.threshold

    @property
    def is_halted(self) -> bool:
        """Whether nothing may start now."""
        return len(self.failed) >= self.threshold + self.allowed[-1][1]

    @property
    def harmed(self) -> set[str]:
        """Who counts while the target proves itself."""
        return self.in_flight | self.failed.keys()

    def accept(self, failures: int, time: float) -> None:
        """A person named another number: the proof begins anew."""
        if failures != self.allowed[-1][1]:
            self.allowed.append((time, failures))
            self.validated.clear()

    def allowance(self, since: float) -> int:
        """The highest that held at some moment since then."""
        first = bisect_right(self.allowed, since, key=lambda one: one[0])
        return self.threshold + max(failures for _, failures in self.allowed[max(first - 1, 0) :])

    def was_halted(self, place: int, since: float) -> bool:
        """Whether it was at a place, whatever people accepted since then."""
        failed = bisect_right(list(self.failed.values()), place)
        return failed >= self.allowance(since)

    def validate(self, uid: str) -> None:
        """A node has evidence; a failure that was healed is none."""
        if uid not in self.failed:
            self.validated.add(uid)

    def leave(self, uid: str) -> None:
        """A node is in flight here no more."""
        self.in_flight.discard(uid)
        self.beside.discard(uid)
