"""JetStream: configure streams as in `contracts.subjects`, store, read and purge messages."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.bus.nats.connection import Connection
from libs.bus.nats.pending import Msg
from libs.bus.port import (
    BusError,
    BusMisconfigured,
    BusUnavailable,
    NoResponders,
    SequenceConflict,
    StoredMessage,
)
from libs.contracts import subjects
from libs.contracts.subjects import HEADERS, Stream

API_SECONDS = 5.0
NANOSECONDS = 1_000_000_000
DUPLICATE_SECONDS = 120

_STREAM_NOT_FOUND = 10059
_STREAM_NAME_IN_USE = 10058
_WRONG_LAST_SEQUENCE = (10071, 10164)
_NOT_YET = (10005, 10008, 10074)
"""Errors while a cluster forms: no suitable servers, no leader, a server without a cluster."""
_PLACEMENT = "placement"


class ApiError(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Reply(msgspec.Struct, frozen=True):
    """The reply to a stored message, or to a call that returns only an error."""

    stream: str = ""
    seq: int = 0
    error: ApiError | None = None


class _StreamState(msgspec.Struct, frozen=True):
    last_seq: int = 0


class StreamInfo(msgspec.Struct, frozen=True):
    created: str = ""
    config: dict[str, Any] = {}
    state: _StreamState = _StreamState()
    error: ApiError | None = None


_reply = msgspec.json.Decoder(_Reply)
_info = msgspec.json.Decoder(StreamInfo)


def configuration(stream: Stream) -> dict[str, Any]:
    """Return a stream's configuration for JetStream's API."""
    config: dict[str, Any] = {
        "name": stream.name,
        "description": stream.description,
        "subjects": list(stream.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": "new" if stream.refuses_when_full else "old",
        "max_consumers": stream.max_consumers,
        "max_msgs": -1,
        "max_msgs_per_subject": stream.per_subject,
        "max_bytes": stream.max_bytes,
        "max_age": int(stream.max_age * NANOSECONDS),
        "max_msg_size": stream.max_message + HEADERS,
        "compression": "s2" if stream.compressed else "none",
        "duplicate_window": DUPLICATE_SECONDS * NANOSECONDS,
        "deny_delete": True,
        "deny_purge": stream.deny_purge,
        "allow_direct": True,
        "num_replicas": stream.replicas,
    }
    if stream.notify is not None:
        source, destination = stream.notify
        config["republish"] = {"src": source, "dest": destination}
    return config


class JetStream:
    """Streams over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ensured: dict[str, Stream] = {}

    async def api(self, *call: str, body: bytes = b"") -> Msg:
        """Call JetStream's API."""
        try:
            return await self._connection.request(subjects.js_api(*call), body, timeout=API_SECONDS)
        except NoResponders:
            raise BusUnavailable(
                f"JetStream at {self._connection.url} does not answer ({'.'.join(call)}):"
                f" it is starting, or the server's configuration lacks `jetstream {{}}`"
            ) from None

    async def info(self, stream: Stream) -> StreamInfo | None:
        """Return the server's information on the stream, or None if it does not exist."""
        info = _info.decode((await self.api("STREAM", "INFO", stream.name)).data)
        if info.error is None:
            return info
        if info.error.err_code == _STREAM_NOT_FOUND:
            return None
        raise BusUnavailable(f"stream {stream.name}: no information: {info.error.description}")

    async def ensure(self, stream: Stream) -> None:
        """Create the stream, or update it to this configuration."""
        self._ensured[stream.name] = stream
        info = await self.info(stream)
        if info is None:
            info = await self._create(stream)
        actual = info.config
        expected = configuration(stream)
        different = {
            key: actual.get(key)
            for key, value in expected.items()
            if not _agree(actual.get(key), value)
        }
        if not different:
            return
        # Copies of a stream that was created at its origin may be on any server.
        kept = {key: value for key, value in actual.items() if key != _PLACEMENT}
        error = await self._configure("UPDATE", stream, kept | expected)
        if error is not None:
            wants = {key: expected[key] for key in different}
            raise _refused(stream, f"has {different}, wants {wants}", error)

    async def _create(self, stream: Stream) -> StreamInfo:
        """Create the stream, at its origin if it has one; return what there is then."""
        config = configuration(stream)
        if stream.sequence_fenced:
            # A recreated stream starts beyond all its earlier sequences, so that a sequence that
            # a writer remembers from before never matches a new message.
            config["first_seq"] = int(self._connection.clock.now() * 1000)
        attempts = [config]
        if stream.origin:
            # A server that joins a cluster keeps its messages of a stream that is created on it
            # alone, and deletes after half a minute what was not (tried with nats-server 2.15.1).
            alone = {"num_replicas": 1, _PLACEMENT: {"tags": [stream.origin]}}
            attempts.insert(0, config | alone)
        for attempt in attempts:
            error = await self._configure("CREATE", stream, attempt)
            if error is None:
                return StreamInfo(config=attempt)
            if error.err_code == _STREAM_NAME_IN_USE:
                break
            if error.err_code in _NOT_YET or attempt is config:
                raise _refused(stream, "cannot be created", error)
        return await self.info(stream) or StreamInfo()

    async def _configure(
        self, verb: str, stream: Stream, config: dict[str, Any]
    ) -> ApiError | None:
        answer = await self.api("STREAM", verb, stream.name, body=msgspec.json.encode(config))
        return _reply.decode(answer.data).error

    async def recreate(self, stream: Stream) -> bool:
        """Recreate a lost stream; return False if this connection had not ensured it."""
        ensured = self._ensured.get(stream.name)
        if ensured is None:
            return False
        await self.ensure(ensured)
        return True

    async def store(
        self, stream: Stream, subject: str, data: bytes, *, expect: int | None = None, id: str = ""
    ) -> int:
        """Store a message and return its sequence; recreate a lost stream once."""
        if len(data) > stream.max_message:
            raise BusError(
                f"{subject}: {len(data)} bytes; {stream.name} accepts at most {stream.max_message}"
            )
        try:
            return await self._store(stream, subject, data, expect, id)
        except NoResponders:
            if not await self.recreate(stream):
                raise BusUnavailable(
                    f"{subject}: stream {stream.name} does not exist; the scheduler creates it"
                ) from None
        try:
            return await self._store(stream, subject, data, expect, id)
        except NoResponders:
            raise BusUnavailable(f"{subject}: stream {stream.name} does not accept it") from None

    async def _store(
        self, stream: Stream, subject: str, data: bytes, expect: int | None, id: str
    ) -> int:
        headers = {"Nats-Expected-Stream": stream.name}
        if expect is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expect)
        if id:
            headers["Nats-Msg-Id"] = id
        answer = await self._connection.request(subject, data, timeout=API_SECONDS, headers=headers)
        try:
            ack = _reply.decode(answer.data)
        except msgspec.DecodeError:
            raise BusUnavailable(
                f"{subject}: {answer.data[:80]!r} is not an acknowledgement"
            ) from None
        if ack.error is None and (ack.stream, ack.seq > 0) == (stream.name, True):
            return ack.seq
        if ack.error is None:
            raise BusUnavailable(f"{subject}: {answer.data[:80]!r} does not acknowledge it")
        if ack.error.err_code in _WRONG_LAST_SEQUENCE:
            raise SequenceConflict(f"{subject}: not at {expect}: {ack.error.description}")
        raise BusUnavailable(f"{subject}: not stored: {ack.error.description}")

    async def last(self, stream: Stream, subject: str) -> StoredMessage | None:
        """Return the last message of a subject, by direct get."""
        try:
            answer = await self._connection.request(
                subjects.direct_get(stream.name, subject), b"", timeout=API_SECONDS
            )
        except NoResponders:
            raise BusUnavailable(f"{subject}: stream {stream.name} does not exist") from None
        headers = answer.headers or {}
        status = headers.get("Status", "")
        if status == "404":
            return None
        if status or "Nats-Sequence" not in headers:
            raise BusUnavailable(f"{subject}: not read: {status} {headers.get('Description', '')}")
        return StoredMessage(
            headers.get("Nats-Subject", subject),
            int(headers["Nats-Sequence"]),
            _unix(headers.get("Nats-Time-Stamp", "")),
            answer.data,
        )

    async def purge(self, stream: Stream, pattern: str) -> None:
        body = msgspec.json.encode({"filter": pattern})
        answer = await self.api("STREAM", "PURGE", stream.name, body=body)
        error = _reply.decode(answer.data).error
        if error is not None:
            raise BusError(f"{pattern}: not purged from {stream.name}: {error.description}")


def _refused(stream: Stream, problem: str, error: ApiError) -> BusError:
    if error.err_code in _NOT_YET:
        return BusUnavailable(
            f"stream {stream.name} {problem}: {error.description}; this goes by itself once the"
            f" servers of NATS that it needs are there, as one cluster"
        )
    return BusMisconfigured(
        f"stream {stream.name} {problem}: {error.description};"
        f" change the server's limits or its other streams, or move this one out of the way"
        f" (it keeps {stream.description})"
    )


def _agree(actual: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and actual:
        return expected.items() <= actual.items()
    return (actual or 0) == (expected or 0) or (actual is None and expected == "none")


def _unix(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0
