"""Random contents of messages, and random operations of NATS's protocol."""

import random
import re
from collections.abc import Callable, Sequence

from libs.bus.permissions import permissions
from libs.contracts import subjects
from libs.contracts.identities import COMPONENTS, Identity
from libs.contracts.senders import event_subjects, report_subjects
from libs.contracts.subjects import STATE, STREAMS
from tests.contracts.goldens import EXAMPLES, path_of
from tests.security.identities import B_DRIVER, SCHEDULER, beat, notification, slot, state

FUZZ_SEEDS = "SLUICE_FUZZ_SEEDS"
"""The environment variable with the number of seeds of the fuzzing tests."""

GOLDEN = [path_of(name).read_bytes() for name in EXAMPLES]
_VALUE = re.compile(rb'-?\d+(?:\.\d+)?|"[^"]*"|true|false|null')
_HOSTILE_VALUES = (
    b"9" * 17,
    b"9" * 4_299,
    b"-" + b"9" * 4_301,
    b"1e999",
    b"1e308",
    b'"\\ud800"',
    b'"\\udfff\\ud800"',
    b'"\\u0000\\u001b[2J"',
    b'"\xff\xfe"',
    b"[" * 5_000,
    b'{"a":' * 5_000,
    b"[]",
    b"{}",
    b"null",
    b'""',
)
_WORDS = (
    *(b"PUB", b"HPUB", b"SUB", b"UNSUB", b"MSG", b"HMSG", b"PING", b"PONG", b"+OK", b"-ERR"),
    *(b"INFO {}", b"CONNECT {}", b"", b"\xff\xfe", b"\x00", b"A" * 5_000),
)
_HEADER_LINES = (
    *(b"Nats-Msg-Id: 1", b"Nats-Rollup: all", b"Nats-TTL: 1s", b"Nats-Expected-Last-Sequence: 1"),
    *(b"Nats-Schedule: @every 1s", b"Nats-Trace-Dest: x", b"Nats-Incr: +1", b"Status: 503"),
    *(b"Nats-Last-Consumer: 1", b"Nats-Consumer-Stalled: x", b"a: \xff", b": ", b"\xff\xfe", b""),
)
_STATUS_LINES = (
    *(b"NATS/1.0", b"NATS/1.0 503", b"NATS/1.0 \xff\xfe", b"NATS/1.0 100 \xff", b"N", b""),
    "NATS/1.0 ²²²".encode(),
)


def content(random: random.Random) -> bytes:
    """Return random bytes, or a golden message with some parts replaced."""
    if random.random() < 0.2:
        return random.randbytes(random.randrange(64))
    data = random.choice(GOLDEN)
    for _ in range(random.randrange(4)):
        data = random.choice(_CHANGES)(random, data)
    return data


def _replace_value(random: random.Random, data: bytes) -> bytes:
    found = list(_VALUE.finditer(data))
    if not found:
        return data
    match = random.choice(found)
    return data[: match.start()] + random.choice(_HOSTILE_VALUES) + data[match.end() :]


def _replace_bytes(random: random.Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.randrange(8))
    return data[:start] + random.randbytes(random.randrange(8)) + data[end:]


def _repeat(random: random.Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.randrange(40))
    return data[:end] + data[start:end] * random.randrange(50) + data[end:]


def _truncate(random: random.Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


_CHANGES: Sequence[Callable[[random.Random, bytes], bytes]] = (
    _replace_value,
    _replace_value,
    _replace_bytes,
    _repeat,
    _truncate,
)


def operation(random: random.Random, identity: Identity) -> bytes:
    """Return one operation of the protocol, mostly a permitted publication."""
    kind = random.random()
    if kind < 0.04:
        words = random.choices(_WORDS, k=random.randrange(1, 5))
        return b" ".join(words) + b"\r\n"
    if kind < 0.08:
        pattern = _subject(random, permissions(identity).subscribe)
        return b"SUB " + pattern + b" %d\r\n" % random.randrange(20)
    subject, data = _subject(random, permissions(identity).publish), content(random)
    if identity.writer in COMPONENTS and random.random() < 0.4:
        subject, data = _in_its_name(random, identity)
    reply = random.choice(_replies(identity)) if random.random() < 0.6 else b""
    return publication(subject, data, reply=reply, headers=_headers(random))


def _in_its_name(random: random.Random, identity: Identity) -> tuple[bytes, bytes]:
    """Return the subject of a report, beat or event of a component, and a message that fits it."""
    of_node = {"cluster": identity.cluster, "node": identity.node}
    subject = random.choice(
        (
            *report_subjects(identity.writer, **of_node),
            *event_subjects(identity.writer, **of_node),
            subjects.Beat(**of_node, component=identity.writer),
            subjects.Journal(**of_node, component=identity.writer),
        )
    )
    plane = type(subject).plane
    has_kinds = not isinstance(subject, subjects.Beat | subjects.Journal)
    form = f"{plane}.{subject.kind}" if has_kinds else plane
    data = path_of(form).read_bytes()
    for field, value in (
        ("node", identity.node),
        ("component", identity.writer),
        ("writer", identity.writer),
    ):
        data = re.sub(rb'("%s": ?)"[^"]*"' % field.encode(), rb'\1"%s"' % value.encode(), data)
    if random.random() < 0.3:
        data = random.choice(_CHANGES)(random, data)
    return str(subject).encode(), data


def _subject(random: random.Random, patterns: Sequence[str]) -> bytes:
    """Return a subject in one of these patterns, sometimes with a token replaced."""
    tokens = random.choice(patterns).replace(">", "a.b").replace("*", "any").encode().split(b".")
    if random.random() < 0.1:
        tokens[random.randrange(len(tokens))] = random.choice((b"\xff\xfe", b"*", b">", b"x", b""))
    return b".".join(tokens)


def _replies(identity: Identity) -> Sequence[bytes]:
    texts = (
        f"{subjects.inbox(identity)}.x.y",
        f"{subjects.inbox(SCHEDULER)}.x.y",
        *(state(B_DRIVER), beat(B_DRIVER), slot(B_DRIVER), notification(slot(B_DRIVER))),
        *(subjects.kick("x"), f"{subjects.JS_ACK}.STATE.x.1.2.3.4.5", "_R_.x"),
        subjects.js_api("STREAM", "PURGE", STATE.name),
        *(subjects.direct_get(stream.name, slot(B_DRIVER)) for stream in STREAMS),
    )
    return (*(text.encode() for text in texts), b"\xff\xfe", b"a.\xff.\xfe", b"x" * 3_000)


def _headers(random: random.Random) -> bytes:
    if random.random() < 0.6:
        return b""
    lines = random.choices(_HEADER_LINES, k=random.randrange(4))
    end = b"\r\n\r\n" if random.random() < 0.9 else b""
    return b"\r\n".join((random.choice(_STATUS_LINES), *lines)) + end


def publication(
    subject: bytes, data: bytes = b"x", *, reply: bytes = b"", headers: bytes = b""
) -> bytes:
    """Return the bytes of a publication as they travel."""
    words = [subject, *([reply] if reply else [])]
    if headers:
        sizes = b"%d %d" % (len(headers), len(headers) + len(data))
        return b"HPUB " + b" ".join([*words, sizes]) + b"\r\n" + headers + data + b"\r\n"
    return b"PUB " + b" ".join([*words, b"%d" % len(data)]) + b"\r\n" + data + b"\r\n"
