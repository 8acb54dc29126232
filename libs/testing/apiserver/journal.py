"""Every request that wrote, or tried to, in order: what the audit reads.

The newest records are kept as they were written, those before them packed, or in a file where one
is given: a fleet's first day is otherwise as large as the fleet.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from libs.contracts.journal import Revision

KEPT = 1_000
"""Records that are put away together."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Revision).decode


class RevisionJournal:
    """Grows for as long as its server lives."""

    def __init__(self, *, spill: Path | None = None, keeps: int = KEPT) -> None:
        self._records: list[bytes] = []
        self._packed: list[bytes] = []
        self._keeps = keeps
        self._file = None if spill is None else spill.open("w+b")
        self._away = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._away + len(self._records)

    def add(self, revision: Revision) -> None:
        """Write one down; what it holds may change afterwards."""
        self._records.append(_encode(revision))
        if len(self._records) >= self._keeps:
            self._put_away()

    @property
    def revisions(self) -> Iterator[Revision]:
        """From the first on, to the last that is there now."""
        packed, kept = list(self._packed), list(self._records)
        if self._file is not None:
            at = 0
            for _ in range(self._away):
                self._file.seek(at)  # others may write between two records
                line = self._file.readline()
                at += len(line)
                yield _decode(line)
        for block in packed:
            for record in zlib.decompress(block).splitlines():
                yield _decode(record)
        for record in kept:
            yield _decode(record)

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()

    def _put_away(self) -> None:
        lines = b"".join(record + b"\n" for record in self._records)
        if self._file is None:
            self._packed.append(zlib.compress(lines, level=1))
        else:
            self._file.seek(0, 2)
            self._file.write(lines)
        self._away += len(self._records)
        self._records.clear()
