"""The accounts of nats-server, and what passes between them.

There are three accounts, because the server does not check whether a sender may publish to the
reply subject of its message: one for the streams, one for the agents, one for services and people.
Each has connections of its own, so that agents cannot lock services out; `connections` cuts an
identity that takes too many. The server's own account has no users: it is asked, by imports, to
list and close connections, for a fourth account, in which sign-in alone connects.
The streams are called through a service import. Its answer returns to the caller's own account and
is not imported again, so a forged reply subject cannot make it a report, event, slot or API call.
"""

import json
from collections.abc import Iterable
from typing import Final

import msgspec

from libs.bus.connections import SHARES
from libs.bus.permissions import AUTH, NODES, SERVICES, permissions
from libs.contracts import subjects
from libs.contracts.identities import CLUSTER_WRITERS, Identity, Writer
from libs.contracts.subjects import (
    ANY,
    COMMANDS,
    STREAMS,
    Beat,
    Check,
    Command,
    Event,
    Journal,
    Lengths,
    State,
    Telemetry,
    plane_pattern,
)

SPARE_CONNECTIONS: Final = 4096
"""Connections of each account beyond two for each identity of a node, and their share for others:
room for other identities until those of an attacker are cut."""

SYSTEM: Final = "SYS"
_STREAMS: Final = "STREAMS"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    exports: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """The public keys of its users; only sign-in has any, all others are admitted by it."""
    limits: dict[str, int] = {}
    jetstream: dict[str, int] = {}

    def lines(self) -> Iterable[str]:
        """Return the account as the server's configuration writes it."""
        yield f"  {self.name} {{"
        for name, limits in (("jetstream", self.jetstream), ("limits", self.limits)):
            if limits:
                yield f"    {name} {{"
                yield from (f"      {limit}: {value}" for limit, value in limits.items())
                yield "    }"
        yield from _list("exports", self.exports)
        yield from _list("imports", self.imports)
        yield from _list("users", (line for key in self.keys for line in _user(key)))
        yield "  }"


def accounts(keys: Iterable[str], *, identities: int, replicas: int) -> tuple[Account, ...]:
    """Return the accounts for sign-in's own keys, and for `identities` of nodes that it admits."""
    return (_streams(replicas), _nodes(identities), _services(), _auth(tuple(keys)), _system())


def _streams(replicas: int) -> Account:
    # A single service export lets the server recognize answers to calls, and stop cycles.
    return Account(
        name=_STREAMS,
        jetstream={
            "max_memory": 0,
            "max_file": replicas * sum(stream.max_bytes for stream in STREAMS),
            "max_streams": len(STREAMS),
            "max_consumers": sum(stream.max_consumers for stream in STREAMS),
        },
        exports=(
            _export("service", ">", NODES, SERVICES),
            _export("stream", subjects.NOTIFIES, NODES),
            _export("stream", subjects.querier_inboxes(ANY), SERVICES),
        ),
    )


def _nodes(identities: int) -> Account:
    # Each pattern has a wildcard: an import without one would also import answers to others.
    calls = (plane_pattern(State), plane_pattern(Event), subjects.direct_get(COMMANDS.name, ">"))
    return Account(
        name=NODES,
        # A broken connection counts until the server notices, while its successor connects.
        limits={
            "max_connections": 2 * identities + SPARE_CONNECTIONS,
            "max_subscriptions": 16,
        },
        exports=tuple(_export("stream", each, SERVICES) for each in _node_broadcasts()),
        imports=(
            *(_import("service", _STREAMS, each) for each in calls),
            _import("stream", _STREAMS, subjects.NOTIFIES),
        ),
    )


def _services() -> Account:
    # Importing JetStream's whole API keeps the server from adding its own import of it.
    calls = (
        *(plane_pattern(plane) for plane in (Command, Check, Event, Lengths)),
        subjects.js_api(">"),
        subjects.flow_control(ANY),
    )
    return Account(
        name=SERVICES,
        limits={
            "max_connections": SHARES[SERVICES] * len(CLUSTER_WRITERS) + SPARE_CONNECTIONS,
            "max_subscriptions": 256,
        },
        imports=(
            *(_import("service", _STREAMS, each) for each in calls),
            _import("stream", _STREAMS, subjects.querier_inboxes(ANY)),
            *(_import("stream", NODES, each) for each in _node_broadcasts()),
        ),
    )


def _auth(keys: tuple[str, ...]) -> Account:
    return Account(
        name=AUTH,
        limits={
            "max_connections": SHARES[SERVICES] * len(keys) + SPARE_CONNECTIONS,
            "max_subscriptions": 16,
        },
        imports=_MONITORING,
        keys=keys,
    )


def _system() -> Account:
    return Account(
        name=SYSTEM,
        exports=(
            *(_export("service", each, AUTH) for each in _SYSTEM_CALLS),
            _export("stream", subjects.CONNECTIONS, AUTH),
        ),
    )


def _node_broadcasts() -> tuple[str, ...]:
    return plane_pattern(Beat), plane_pattern(Telemetry), plane_pattern(Journal)


def _export(kind: str, subject: str, *accounts: str) -> str:
    return f"{{{kind}: {json.dumps(subject)}, accounts: [{', '.join(accounts)}]}}"


def _import(kind: str, account: str, subject: str) -> str:
    return f"{{{kind}: {{account: {account}, subject: {json.dumps(subject)}}}}}"


# The wildcards keep answers to other calls out, as above.
_SYSTEM_CALLS = (subjects.list_connections(ANY), subjects.kick(ANY))
_MONITORING = (
    *(_import("service", SYSTEM, each) for each in _SYSTEM_CALLS),
    _import("stream", SYSTEM, subjects.CONNECTIONS),
)


def _user(key: str) -> tuple[str, str]:
    sign_in = Identity(writer=Writer.SIGN_IN)
    allowed = permissions(sign_in)
    publish, subscribe = json.dumps(allowed.publish), json.dumps(allowed.subscribe)
    rights = f"publish: {{allow: {publish}}}, subscribe: {{allow: {subscribe}}}"
    return f"# {sign_in}", f"{{nkey: {key}, permissions: {{{rights}}}}}"


def _list(name: str, items: Iterable[str]) -> Iterable[str]:
    listed = [f"      {item}" for item in items]
    if listed:
        yield from (f"    {name}: [", *listed, "    ]")
