"""The journal of all writes and refused writes, which the audit reads.

Older records are compressed, or kept in a file if one is given, to bound the memory of a long run.
"""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from libs.contracts.journal import Revision, Verb
from libs.kube.changes import changed_paths
from libs.testing.apiserver.requests import ApiCall
from libs.testing.apiserver.writes.admission import WriteOutcome

_BLOCK = 1_000
"""Records that are packed together."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Revision).decode


class RevisionJournal:
    def __init__(self, *, spill: Path | None = None, keeps: int = _BLOCK) -> None:
        self._records: list[bytes] = []
        self._packed: list[bytes] = []
        self._block = keeps
        self._file = None if spill is None else spill.open("w+b")
        self._packed_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._packed_count + len(self._records)

    def add(self, revision: Revision) -> None:
        """Encode a record; its content may change afterwards."""
        self._records.append(_encode(revision))
        if len(self._records) >= self._block:
            self._pack()

    @property
    def revisions(self) -> Iterator[Revision]:
        """Iterate over the records that exist now, oldest first."""
        packed, kept = list(self._packed), list(self._records)
        if self._file is not None:
            offset = 0
            for _ in range(self._packed_count):
                self._file.seek(offset)  # a write between two records moves the file
                line = self._file.readline()
                offset += len(line)
                yield _decode(line)
        for block in packed:
            for record in zlib.decompress(block).splitlines():
                yield _decode(record)
        for record in kept:
            yield _decode(record)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _pack(self) -> None:
        lines = b"".join(record + b"\n" for record in self._records)
        if self._file is None:
            self._packed.append(zlib.compress(lines, level=1))
        else:
            self._file.seek(0, 2)
            self._file.write(lines)
        self._packed_count += len(self._records)
        self._records.clear()


def granted_revision(call: ApiCall, outcome: WriteOutcome, *, now: float) -> Revision:
    return _record(
        call,
        outcome.code,
        now=now,
        revision=0 if call.verb == "deletecollection" else outcome.revision,
        name=outcome.name,
        uid=outcome.uid,
        changed=changed_paths(outcome.before, outcome.after),
    )


def target_identity(call: ApiCall) -> tuple[str, str]:
    """Return name and uid of the object in the request; empty where it names none."""
    metadata = _map(_body(call).get("metadata"))
    name = call.route.name or str(metadata.get("name") or "")
    return name, str(metadata.get("uid") or "")


def refused_revision(call: ApiCall, code: int, *, name: str, uid: str, now: float) -> Revision:
    return _record(call, code, now=now, name=name, uid=uid)


def _record(call: ApiCall, code: int, *, now: float, revision: int = 0, **more: Any) -> Revision:
    route = call.route
    return Revision(
        revision=revision,
        time=now,
        user=call.user,
        manager=call.manager,
        verb=Verb({"bind": "create", "deletecollection": "delete"}.get(call.verb, call.verb)),
        code=code,
        kind="Binding" if route.subresource == "binding" else route.kind.kind,
        namespace=route.namespace,
        **more,
    )


def _body(call: ApiCall) -> Mapping[str, Any]:
    """Return the body; an empty map where it is no object."""
    try:
        return _map(msgspec.json.decode(call.request.body))
    except msgspec.DecodeError:
        return {}


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
