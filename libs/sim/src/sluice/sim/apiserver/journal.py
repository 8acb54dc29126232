"""Every request that wrote, or tried to, in order: what the audit reads.

Records are kept encoded; beyond so many they go to a file, where one is given.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from sluice.contracts.journal import Revision

KEPT = 20_000
"""Records in memory before those so far are written to the file."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Revision).decode


class Journal:
    """Grows for as long as its server lives."""

    def __init__(self, *, spill: Path | None = None, keeps: int = KEPT) -> None:
        self._records: list[bytes] = []
        self._keeps = keeps
        self._file = None if spill is None else spill.open("w+b")
        self._spilled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._spilled + len(self._records)

    def add(self, revision: Revision) -> None:
        """Write one down; what it holds may change afterwards."""
        self._records.append(_encode(revision))
        if self._file is not None and len(self._records) >= self._keeps:
            self._file.seek(0, 2)
            self._file.writelines(record + b"\n" for record in self._records)
            self._spilled += len(self._records)
            self._records.clear()

    @property
    def revisions(self) -> Iterator[Revision]:
        """From the first on."""
        kept = list(self._records)
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self._spilled):
                yield _decode(self._file.readline())
        for record in kept:
            yield _decode(record)

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
