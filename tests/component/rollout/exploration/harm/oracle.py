"""How much harm was done, kept from what happened to nodes and never from what a Rollout says.

docs/states.md#harm, in sets of node uids. Must not know the engine.
"""

from collections.abc import Mapping, Set

import msgspec
from msgspec.structs import replace


class HarmBoundExceeded(Exception):
    """More than was chosen."""


class TargetHarm(msgspec.Struct, frozen=True, kw_only=True):
    """Of one target, from its first grant until it is proven and complete."""

    threshold: int
    accepted: int = 0
    failed: frozenset[str] = frozenset()
    validated: frozenset[str] = frozenset()
    proven: bool = False
    most: int | None = None
    """So many can fail at all, from when it was halted although it was proven."""

    @property
    def allowance(self) -> int:
        """So many may be in flight or broken."""
        return self.accepted + self.threshold

    @property
    def halted(self) -> bool:
        """Whether nobody may be started."""
        return len(self.failed) >= self.allowance


class HarmOracle(msgspec.Struct, frozen=True, kw_only=True):
    """Of a pool."""

    books: Mapping[str, TargetHarm] = {}
    sick: Mapping[str, str] = {}
    """By uid: the target on which it failed first since it was last well."""

    def _with(self, target: str, book: TargetHarm) -> "HarmOracle":
        return replace(self, books={**self.books, target: book})

    @property
    def halted(self) -> frozenset[str]:
        """Targets on which nobody may be started."""
        return frozenset(target for target, book in self.books.items() if book.halted)

    def begun(self, target: str, threshold: int, accepted: int) -> "HarmOracle":
        """It is granted for the first time."""
        return self._with(target, TargetHarm(threshold=threshold, accepted=accepted))

    def forgotten(self, target: str) -> "HarmOracle":
        """The Rollout does not know it any more."""
        book = self.books[target]
        if book.halted or not book.proven:
            raise HarmBoundExceeded(f"{target} was forgotten, on which {len(book.failed)} failed")
        return replace(self, books={t: one for t, one in self.books.items() if t != target})

    def released(self, target: str, accepted: int, ending: frozenset[str]) -> "HarmOracle":
        """A person accepts so many; who has ended and holds its place still counts for the new."""
        book = self.books[target]
        kept = book.validated & ending
        book = replace(book, accepted=accepted, validated=kept, most=None)
        return self._with(target, replace(book, proven=len(kept) >= book.threshold))

    def grew(self, target: str, before: set[str], flying: set[str]) -> None:
        """Nodes are in flight to it that were not before."""
        book = self.books.get(target)
        if book is None or book.proven or not flying - before - book.failed:
            return
        if len(flying | book.failed) > book.allowance:
            raise HarmBoundExceeded(
                f"{target} is unproven, {sorted(flying)} are in flight and {sorted(book.failed)}"
                f" failed: more than {book.allowance}"
            )

    def failing(self, uid: str, target: str, started: int) -> "HarmOracle":
        """It failed after the start; so many others are past it or on their way there."""
        first = self.sick.get(uid, target)
        truth = replace(self, sick={**self.sick, uid: first})
        if first != target:
            return truth
        book = self.books[target]
        book = replace(book, failed=book.failed | {uid})
        most = book.most
        if most is None:
            most = book.allowance
            if book.halted:
                most += started if book.proven else 0
                book = replace(book, most=most)
        if len(book.failed) > most:
            raise HarmBoundExceeded(f"{sorted(book.failed)} failed on {target}: more than {most}")
        return truth._with(target, book)

    def lost(self, uid: str, known: Set[str]) -> "HarmOracle":
        """It is gone; its failures stay counted on those targets on which they are known."""
        books = {
            target: book
            if target in known
            else replace(book, failed=book.failed - {uid}, most=None)
            for target, book in self.books.items()
        }
        return replace(self, books=books)

    def well(self, uid: str, target: str, *, outside: bool) -> "HarmOracle":
        """It was validated there."""
        sick = {one: first for one, first in self.sick.items() if one != uid}
        truth = replace(self, sick=sick)
        book = self.books.get(target)
        if outside or book is None or uid in book.failed or uid in self.sick:
            return truth
        if len(book.validated) >= book.threshold:
            return truth
        book = replace(book, validated=book.validated | {uid})
        proven = book.proven or len(book.validated) >= book.threshold
        return truth._with(target, replace(book, proven=proven))
