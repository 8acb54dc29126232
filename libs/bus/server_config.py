"""The accounts, users and limits in nats-server's configuration.

There are three accounts, because the server does not check whether a sender may publish to the
reply subject of its message: one for the streams, one for the agents, one for services and people.
The streams are called through a service import. Its answer returns to the caller's own account and
is not imported again, so a forged reply subject cannot make it a report, event, slot or API call.
Addresses, stores, TLS and the storage of keys are chosen by the deployment.
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
from libs.contracts.subjects import (
    ANY,
    COMMANDS,
    STREAMS,
    Beat,
    Check,
    Command,
    Event,
    State,
    Telemetry,
    plane_pattern,
)

HEADERS = 64 * 1024
"""Maximum bytes of a message's headers."""

_STREAMS, _NODES, _SERVICES = "STREAMS", "NODES", "SERVICES"

_nkeys: Any = nkeys  # nkeys has no type annotations


class User(msgspec.Struct, frozen=True, kw_only=True):
    """An identity and one of its public keys."""

    identity: Identity
    public_key: str

    def __post_init__(self) -> None:
        if not _is_public_key(self.public_key):
            raise ValueError(
                f"{self.identity}: {self.public_key!r} is not the public key of a user: such a key"
                f" starts with U and belongs to the seed"
            )


class Nkey(NamedTuple):
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
    jetstream: dict[str, int] = {}

    def lines(self) -> Iterable[str]:
        yield f"  {self.name} {{"
        for name, limits in (("jetstream", self.jetstream), ("limits", self.limits)):
            if limits:
                yield f"    {name} {{"
                yield from (f"      {limit}: {value}" for limit, value in limits.items())
                yield "    }"
        yield from _list("exports", self.exports)
        yield from _list("imports", self.imports)
        yield from _list("users", (line for user in self.users for line in _user(user)))
        yield "  }"


def new_nkey() -> Nkey:
    """Return a new key pair of a user; the seed is secret."""
    seed = _nkeys.encode_seed(os.urandom(32), _nkeys.PREFIX_BYTE_USER)
    return Nkey(seed.decode(), _nkeys.from_seed(seed).public_key.decode())


def server_config(users: Iterable[User]) -> str:
    """Return a file for the server's configuration to include; the order of users is irrelevant."""
    users = sorted(users, key=lambda user: (str(user.identity), user.public_key))
    keys = {user.public_key for user in users}
    if len(keys) < len(users):
        raise ValueError(f"{len(users)} users share {len(keys)} keys: create one key for each")
    payload = max(stream.max_message for stream in STREAMS) + HEADERS
    lines = [f"max_payload: {payload}", "accounts {"]
    for account in (_streams(), _nodes(users), _services(users)):
        lines += account.lines()
    return "\n".join((*lines, "}", ""))


def _streams() -> _Account:
    # A single service export lets the server recognize answers to calls, and stop cycles.
    return _Account(
        name=_STREAMS,
        jetstream={
            "max_memory": 0,
            "max_file": sum(stream.max_bytes for stream in STREAMS),
            "max_streams": len(STREAMS),
            "max_consumers": sum(stream.max_consumers for stream in STREAMS),
        },
        exports=(
            _export("service", ">", _NODES, _SERVICES),
            _export("stream", subjects.NOTIFIES, _NODES),
            _export("stream", subjects.querier_inboxes(ANY), _SERVICES),
        ),
    )


def _nodes(all_users: list[User]) -> _Account:
    users = tuple(user for user in all_users if user.identity.writer in COMPONENTS)
    # Each pattern has a wildcard: an import without one would also import answers to others.
    calls = (plane_pattern(State), plane_pattern(Event), subjects.direct_get(COMMANDS.name, ">"))
    return _Account(
        name=_NODES,
        # A broken connection counts until the server notices, while its successor connects.
        limits={"max_connections": 2 * len(users), "max_subscriptions": 16},
        exports=tuple(_export("stream", each, _SERVICES) for each in _node_broadcasts()),
        imports=(
            *(_import("service", _STREAMS, each) for each in calls),
            _import("stream", _STREAMS, subjects.NOTIFIES),
        ),
        users=users,
    )


def _services(all_users: list[User]) -> _Account:
    users = tuple(user for user in all_users if user.identity.writer not in COMPONENTS)
    # Importing JetStream's whole API keeps the server from adding its own import of it.
    calls = (
        *(plane_pattern(plane) for plane in (Command, Check, Event)),
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
            *(_import("stream", _NODES, each) for each in _node_broadcasts()),
        ),
        users=users,
    )


def _node_broadcasts() -> tuple[str, ...]:
    return plane_pattern(Beat), plane_pattern(Telemetry)


def _export(kind: str, subject: str, *accounts: str) -> str:
    return f"{{{kind}: {json.dumps(subject)}, accounts: [{', '.join(accounts)}]}}"


def _import(kind: str, account: str, subject: str) -> str:
    return f"{{{kind}: {{account: {account}, subject: {json.dumps(subject)}}}}}"


def _user(user: User) -> tuple[str, str]:
    allowed = permissions(user.identity)
    publish, subscribe = json.dumps(allowed.publish), json.dumps(allowed.subscribe)
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
