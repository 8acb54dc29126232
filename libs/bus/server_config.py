"""The part of nats-server's configuration that says who may do what: accounts, users, limits.

Three accounts, because the server does not ask whether a sender may publish to the reply subject
that he names. The streams are alone in one, who lives on a node is in another, services and people
are in the third. A call to the streams is a service import: its answer comes back into the caller's
own account and is not imported again, so it becomes no report, event, slot or call of JetStream's
API. Must not know: addresses, stores and TLS, which are the deployment's, as is keeping the keys.
"""

import binascii
import json
import os
from base64 import b32decode
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import nkeys

from libs.bus.permissions import permissions
from libs.contracts import subjects
from libs.contracts.identities import COMPONENTS, Identity
from libs.contracts.streams import COMMANDS, STREAMS
from libs.contracts.subjects import ANY, Beat, Check, Command, Event, State, Telemetry, everything

HEADERS = 64 * 1024
"""Bytes beside a message's content, at most."""

_STREAMS, _NODES, _SERVICES = "STREAMS", "NODES", "SERVICES"

_nkeys: Any = nkeys  # it has no types


class User(msgspec.Struct, frozen=True, kw_only=True):
    """An identity, and the public half of a key by which it is known. It may have several keys."""

    identity: Identity
    public_key: str

    def __post_init__(self) -> None:
        if not _is_public_key(self.public_key):
            raise ValueError(
                f"{self.identity}: {self.public_key!r} is no public key of a user: give the one"
                f" that begins with U and belongs to the seed"
            )


class Nkey(NamedTuple):
    """A key pair."""

    seed: str
    public: str

    def __repr__(self) -> str:
        return f"Nkey({self.public})"


class _Account(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    exports: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    users: tuple[User, ...] = ()
    limits: dict[str, int] = {}
    jetstream: bool = False

    def lines(self) -> Iterable[str]:
        yield f"  {self.name} {{"
        if self.jetstream:
            yield "    jetstream: enabled"
        if self.limits:
            yield "    limits {"
            yield from (f"      {name}: {most}" for name, most in self.limits.items())
            yield "    }"
        yield from _list("exports", self.exports)
        yield from _list("imports", self.imports)
        yield from _list("users", (line for user in self.users for line in _user(user)))
        yield "  }"


def new_nkey() -> Nkey:
    """A key for one user. The seed is the secret: it is given out here and kept nowhere."""
    seed = _nkeys.encode_seed(os.urandom(32), _nkeys.PREFIX_BYTE_USER)
    return Nkey(seed.decode(), _nkeys.from_seed(seed).public_key.decode())


def server_config(users: Iterable[User]) -> str:
    """Accounts, users with what each may do, and limits: to be included by the server's own page.

    The same users in another order give the same text.
    """
    known = sorted(users, key=lambda user: (str(user.identity), user.public_key))
    keys = {user.public_key for user in known}
    if len(keys) < len(known):
        raise ValueError(
            f"{len(known)} users have only {len(keys)} keys between them: make one key for each"
        )
    payload = max(stream.max_message for stream in STREAMS) + HEADERS
    lines = [f"max_payload: {payload}", "accounts {"]
    for account in (_streams(), _nodes(known), _services(known)):
        lines += account.lines()
    return "\n".join((*lines, "}", ""))


def _streams() -> _Account:
    """No users. One export: by it the server knows an answer to a call, and turns back a cycle."""
    return _Account(
        name=_STREAMS,
        jetstream=True,
        exports=(
            _export("service", ">", _NODES, _SERVICES),
            _export("stream", subjects.NOTIFIES, _NODES),
            _export("stream", subjects.querier_inboxes(ANY), _SERVICES),
        ),
    )


def _nodes(known: list[User]) -> _Account:
    users = tuple(user for user in known if user.identity.writer in COMPONENTS)
    # A pattern with a wildcard each: only such an import does not take in an answer to another.
    calls = (everything(State), everything(Event), subjects.direct_get(COMMANDS.name, ">"))
    return _Account(
        name=_NODES,
        # A connection that was cut counts until the server has noticed; then comes the next.
        limits={"max_connections": 2 * len(users), "max_subscriptions": 16},
        exports=tuple(_export("stream", each, _SERVICES) for each in _heard_of_nodes()),
        imports=(
            *(_import("service", _STREAMS, each) for each in calls),
            _import("stream", _STREAMS, subjects.NOTIFIES),
        ),
        users=users,
    )


def _services(known: list[User]) -> _Account:
    users = tuple(user for user in known if user.identity.writer not in COMPONENTS)
    # JetStream's whole API: this keeps the server from importing its own for this account.
    calls = (
        *(everything(plane) for plane in (Command, Check, Event)),
        subjects.js_api(">"),
        subjects.flow_control(ANY),
    )
    return _Account(
        name=_SERVICES,
        # An identity may be several processes: replicas of a service, and several people.
        limits={"max_connections": 16 * len(users), "max_subscriptions": 256},
        imports=(
            *(_import("service", _STREAMS, each) for each in calls),
            _import("stream", _STREAMS, subjects.querier_inboxes(ANY)),
            *(_import("stream", _NODES, each) for each in _heard_of_nodes()),
        ),
        users=users,
    )


def _heard_of_nodes() -> tuple[str, ...]:
    return everything(Beat), everything(Telemetry)


def _export(kind: str, subject: str, *accounts: str) -> str:
    return f"{{{kind}: {json.dumps(subject)}, accounts: [{', '.join(accounts)}]}}"


def _import(kind: str, account: str, subject: str) -> str:
    return f"{{{kind}: {{account: {account}, subject: {json.dumps(subject)}}}}}"


def _user(user: User) -> tuple[str, str]:
    may = permissions(user.identity)
    publish, subscribe = json.dumps(may.publish), json.dumps(may.subscribe)
    rights = f"publish: {{allow: {publish}}}, subscribe: {{allow: {subscribe}}}"
    return f"# {user.identity}", f"{{nkey: {user.public_key}, permissions: {{{rights}}}}}"


def _list(name: str, items: Iterable[str]) -> Iterable[str]:
    listed = [f"      {item}" for item in items]
    if listed:
        yield from (f"    {name}: [", *listed, "    ]")


def _is_public_key(text: str) -> bool:
    try:
        raw = b32decode(text)
    except (binascii.Error, ValueError):
        return False
    checksum = int.from_bytes(raw[-2:], "little")
    return (
        len(raw) == 1 + 32 + 2
        and raw[0] == _nkeys.PREFIX_BYTE_USER
        and _nkeys.crc16(raw[:-2]) == checksum
    )
