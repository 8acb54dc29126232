"""The subjects of the bus, and the JetStream streams that store some of them.

No other module builds or parses subjects; `libs.bus` configures the server by `STREAMS`.

`str(State(cluster="default", node="a.example", component="driver", kind="facts"))` is a subject;
`parse` is the inverse. A field that is `ANY` makes a pattern. Tokens are lower-case. In a node's
name, `_` replaces each dot (node names contain no `_`); `-` means no node.
"""

import re
from typing import ClassVar, Self, TypeAlias

import msgspec

from libs.contracts.identities import Identity
from libs.contracts.message import MAJOR

ROOT = f"sluice.v{MAJOR}"
ANY = "*"
NO_NODE = ""

_TOKEN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class NotASubject(ValueError):
    """Raised for text that is not a subject of Sluice, or for an invalid part of one."""


def check_cluster(name: str) -> None:
    """Refuse what cannot be the name of one cluster: a wildcard is none."""
    if not _TOKEN.fullmatch(name):
        raise NotASubject(
            f"{name[:80]!r} cannot be the name of a cluster on the bus: up to 63 of a-z, 0-9"
            " and '-', as all of Sluice's services have it"
        )


def _token(field: str, value: str) -> str:
    if value == ANY or _TOKEN.fullmatch(value):
        return value
    raise NotASubject(f"{field} {value!r}: want up to 63 of a-z, 0-9 and '-', or '*'")


def _node_token(field: str, name: str) -> str:
    if name == ANY:
        return ANY
    if name == NO_NODE:
        return "-"
    if not _NODE.fullmatch(name) or ".." in name:
        raise NotASubject(f"{field} {name!r}: not the name of a Kubernetes node")
    return name.replace(".", "_")


def _node_name(token: str) -> str:
    return NO_NODE if token == "-" else token.replace("_", ".")


_DOTTED = frozenset({"node", "pool"})
"""Parts that are names of Kubernetes objects."""


class _Subject(msgspec.Struct, frozen=True, kw_only=True):
    plane: ClassVar[str]
    may_lack: ClassVar[str] = ""
    """The name of the last part, if it is optional."""

    def __str__(self) -> str:
        tokens = [
            (_node_token if field in _DOTTED else _token)(field, getattr(self, field))
            for field in self.__struct_fields__
            if not (field == self.may_lack and not getattr(self, field))
        ]
        return ".".join((ROOT, self.plane, *tokens))

    @classmethod
    def _parse(cls, tokens: list[str]) -> Self:
        fields = cls.__struct_fields__
        if len(tokens) != len(fields) and not (
            fields[-1] == cls.may_lack and len(tokens) == len(fields) - 1
        ):
            raise NotASubject(f"a {cls.plane} subject has {', '.join(fields)} after the plane")
        return cls(
            **{
                field: _node_name(token) if field in _DOTTED else token
                for field, token in zip(fields, tokens, strict=False)
            }
        )


class Command(_Subject, frozen=True, kw_only=True):
    """The slot: the current command of one component of one node."""

    plane = "command"
    cluster: str
    node: str
    component: str


class Check(_Subject, frozen=True, kw_only=True):
    """A read-only question to a component, answered on its state or its journal subject."""

    plane = "check"
    cluster: str
    node: str
    component: str
    asker: str


class State(_Subject, frozen=True, kw_only=True):
    """The last report of a kind; the answer to a check also names its sender."""

    plane = "state"
    may_lack = "asker"
    cluster: str
    node: str
    component: str
    kind: str
    asker: str = ""


class Beat(_Subject, frozen=True, kw_only=True):
    """Heartbeats."""

    plane = "beat"
    max_message: ClassVar[int] = 8 * 1024
    cluster: str
    node: str
    component: str


class Telemetry(_Subject, frozen=True, kw_only=True):
    """Batches of metrics."""

    plane = "telemetry"
    max_message: ClassVar[int] = 64 * 1024
    cluster: str
    node: str


class Journal(_Subject, frozen=True, kw_only=True):
    """Pages of a component's journal, as answers to checks of the audit."""

    plane = "journal"
    max_message: ClassVar[int] = 48 * 1024
    cluster: str
    node: str
    component: str


class Event(_Subject, frozen=True, kw_only=True):
    plane = "event"
    cluster: str
    node: str
    writer: str
    kind: str


class Lengths(_Subject, frozen=True, kw_only=True):
    """How long the jobs of a pool ran."""

    plane = "lengths"
    cluster: str
    pool: str


class Query(_Subject, frozen=True, kw_only=True):
    """A read-only question to a service."""

    plane = "ask"
    cluster: str
    service: str
    verb: str


Subject: TypeAlias = Command | Check | State | Lengths | Beat | Telemetry | Journal | Event | Query
Slot: TypeAlias = Command | Check

AUDIT = "audit"
"""The asker of the scheduler's checks for journals: they replace no check of another purpose."""

PLANES: tuple[type[Subject], ...] = (
    Command,
    Check,
    State,
    Lengths,
    Beat,
    Telemetry,
    Journal,
    Event,
    Query,
)
_BY_PLANE = {kind.plane: kind for kind in PLANES}


def parse(subject: str) -> Subject:
    """Parse a subject, or raise `NotASubject`. The result's `str` equals the input."""
    head, _, rest = subject.partition(f"{ROOT}.")
    plane, *tokens = rest.split(".")
    kind = _BY_PLANE.get(plane)
    if head or kind is None:
        raise NotASubject(f"{subject!r}: not {ROOT}.<{'|'.join(_BY_PLANE)}>.…")
    parsed = kind._parse(tokens)  # pyright: ignore[reportPrivateUsage]
    if str(parsed) != subject:
        raise NotASubject(f"{subject!r}: not as this version writes it ({parsed})")
    return parsed


# The notify plane: the server republishes writes to slots.

NOTIFY_FROM = f"{ROOT}.*.>"
NOTIFY_TO = f"{ROOT}.notify.$1.>"
NOTIFIES = f"{ROOT}.notify.>"
_NOTIFY = f"{ROOT}.notify."


def notify(slot: Slot) -> str:
    """Return the subject on which the server announces a write to `slot`."""
    return _NOTIFY + str(slot).removeprefix(f"{ROOT}.")


def slot_of(notified: str) -> Slot:
    """Return the slot that a notification subject refers to."""
    slot = parse(f"{ROOT}.{notified.removeprefix(_NOTIFY)}")
    if not notified.startswith(_NOTIFY) or not isinstance(slot, Command | Check):
        raise NotASubject(f"{notified!r}: not a notification of a slot")
    return slot


def plane_pattern(plane: type[Subject]) -> str:
    """Return the pattern of a plane in all clusters."""
    return f"{ROOT}.{plane.plane}.>"


def cluster_pattern(plane: type[Subject], cluster: str) -> str:
    """Return the pattern of a plane in one cluster."""
    return f"{ROOT}.{plane.plane}.{_token('cluster', cluster)}.>"


# Inboxes: each identity has its own prefix, so that no client can read another's answers.

_INBOX = "_INBOX_sluice"


def inbox(identity: Identity) -> str:
    """Return the prefix of an identity's reply subjects."""
    node = _node_token("node", identity.node)
    return f"{_INBOX}.{_token('cluster', identity.cluster)}.{node}.{identity.writer}"


def querier_inboxes(cluster: str) -> str:
    """Return the pattern of all inboxes that may query services; components are excluded."""
    return f"{_INBOX}.{_token('cluster', cluster)}.-.>"


def is_allowed_reply(reply: str, cluster: str) -> bool:
    """Report whether a reply subject is in an inbox that may query services."""
    return reply.startswith(querier_inboxes(cluster).removesuffix(">"))


# Subjects of nats-server and its conventions.

JS_API = "$JS.API"
JS_ACK = "$JS.ACK"
SERVICE_ROOT = "$SRV"


CONNECTIONS = "$SYS.ACCOUNT.*.*"
"""On `….CONNECT` and `….DISCONNECT` the server publishes each change. One pattern keeps them in
order."""


def list_connections(server: str = "PING") -> str:
    """Return the subject on which a server, by default every one, lists its connections."""
    return f"$SYS.REQ.SERVER.{server}.CONNZ"


SIGN_IN_REQUESTS = "$SYS.REQ.USER.AUTH"
"""The server asks here who a client is, in the account that the auth callout names."""
SIGN_IN_ANSWERS = "$SYS._INBOX.>"


def kick(server: str) -> str:
    """Return the subject on which a server is asked to close a connection."""
    return f"$SYS.REQ.SERVER.{server}.KICK"


def direct_get(stream: str, subject: str) -> str:
    """Return the subject of a direct get of a subject's last message."""
    return f"{JS_API}.DIRECT.GET.{stream}.{subject}"


def js_api(*tokens: str) -> str:
    return ".".join((JS_API, *tokens))


def flow_control(stream: str) -> str:
    """Return the pattern of flow control replies of a stream's readers."""
    return f"$JS.FC.{stream}.>"


def service(verb: str, *tokens: str) -> str:
    """Return a service discovery subject (ADR-32): PING, INFO or STATS, then name and instance."""
    return ".".join((SERVICE_ROOT, verb, *tokens))


def matches(pattern: str, subject: str) -> bool:
    """Report whether a subject matches a pattern, by the rules of NATS."""
    want, have = pattern.split("."), subject.split(".")
    for index, token in enumerate(want):
        if token == ">":
            return len(have) > index
        if index >= len(have) or token not in (ANY, have[index]):
            return False
    return len(want) == len(have)


# Streams. The subjects of a node are finite (`senders`), so each stream has a limit per node, far
# below `max_bytes`: a node can neither fill a stream nor push out the messages of other nodes.

DAY = 86_400.0
KIB = 1024
MIB = 1024 * KIB
HEADERS = KIB
"""Bytes of our headers, which the server counts in the size of a message."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one stream."""

    name: str
    subjects: tuple[str, ...]
    description: str
    """A description of the content."""
    per_subject: int
    """Maximum number of messages per subject; the oldest are discarded."""
    max_message: int
    max_bytes: int = -1
    refuses_when_full: bool = False
    """Whether a full stream refuses new subjects and larger messages. Others drop the oldest."""
    max_age: float = 0.0
    compressed: bool = False
    deny_purge: bool = False
    sequence_fenced: bool = False
    """Whether writers remember sequence numbers, which must not repeat if the stream is lost."""
    notify: tuple[str, str] | None = None
    """Republish stored messages from the first pattern to the second."""
    max_consumers: int
    """Set explicitly, because the server's default (1,000) may change."""
    replicas: int = 1
    """Servers that keep a copy; the deployment chooses it."""
    origin: str = ""
    """The tag of the server whose store may have it from before the server joined a cluster; the
    deployment chooses it, too."""


COMMANDS = Stream(
    name="COMMANDS",
    subjects=(plane_pattern(Command), plane_pattern(Check)),
    description="the slots: the current command of each component, and checks sent to it",
    per_subject=1,
    max_message=64 * KIB,
    max_bytes=256 * MIB,
    refuses_when_full=True,
    sequence_fenced=True,
    notify=(NOTIFY_FROM, NOTIFY_TO),
    max_consumers=64,
)

STATE = Stream(
    name="STATE",
    subjects=(plane_pattern(State), plane_pattern(Lengths)),
    description="the last report of each kind from each component of each node, and what is known"
    " of jobs by pool",
    per_subject=1,
    max_message=256 * KIB,
    max_bytes=2048 * MIB,
    refuses_when_full=True,
    max_consumers=128,
)

EVENTS = Stream(
    name="EVENTS",
    subjects=(plane_pattern(Event),),
    description="events for people, audits and replay; no decision depends on them",
    per_subject=256,
    max_message=16 * KIB,
    max_bytes=1024 * MIB,
    max_age=30 * DAY,
    compressed=True,
    deny_purge=True,
    max_consumers=256,
)

STREAMS = (COMMANDS, STATE, EVENTS)
