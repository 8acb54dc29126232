"""The server does not check the reply subject of a request, so accounts must contain the answer.

An attacker sends a permitted request with a foreign reply subject. The answer stays in the
attacker's own account and is not imported into that of the streams.
"""

import pytest

from libs.bus.permissions import AUTH
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS, EVENTS, STATE
from libs.testing.sign_in import TokenSignIn
from tests.security.identities import (
    A_DRIVER,
    A_TELEMETRY,
    B_DRIVER,
    CTL,
    SCHEDULER,
    TELEMETRY_CLUSTER,
    batch,
    beat,
    check,
    event,
    guessed_inbox,
    slot,
    state,
    status,
)
from tests.security.world import World, consumer, world
from tests.support import eventually

EVIL = "evil"
ONE = "ONE"
ALL_STATE = subjects.cluster_pattern(subjects.State, "default")
ALL_EVENTS = subjects.cluster_pattern(subjects.Event, "default")

SENT: dict[Identity, dict[str, tuple[str, bytes]]] = {
    A_DRIVER: {
        "a report": (state(A_DRIVER), b"mine"),
        "an event": (event(A_DRIVER), b"mine"),
        "a read of its slot": (subjects.direct_get(COMMANDS.name, slot(A_DRIVER)), b""),
    },
    TELEMETRY_CLUSTER: {
        "an event": (event(TELEMETRY_CLUSTER, "health"), b"mine"),
        "information about a stream": (subjects.js_api("STREAM", "INFO", STATE.name), b""),
        "a consumer": (
            subjects.js_api("CONSUMER", "CREATE", STATE.name, EVIL, ALL_STATE),
            consumer(STATE.name, EVIL, filter_subject=ALL_STATE),
        ),
    },
    CTL: {
        "information about a stream": (subjects.js_api("STREAM", "INFO", EVENTS.name), b""),
        "a consumer": (
            subjects.js_api("CONSUMER", "CREATE", EVENTS.name, EVIL, ALL_EVENTS),
            consumer(EVENTS.name, EVIL, filter_subject=ALL_EVENTS),
        ),
    },
}
"""Permitted requests with an answer, by identity."""

STORED = {
    "another node's state": state(B_DRIVER),
    "another component's state": state(A_TELEMETRY),
    "another node's event": event(B_DRIVER),
    "the scheduler's event": event(SCHEDULER, "step"),
    "another node's slot": slot(B_DRIVER),
    "another node's check": check(B_DRIVER),
    "emptying STATE": subjects.js_api("STREAM", "PURGE", STATE.name),
    "emptying COMMANDS": subjects.js_api("STREAM", "PURGE", COMMANDS.name),
    "deleting EVENTS": subjects.js_api("STREAM", "DELETE", EVENTS.name),
}
DELIVERED = {
    "another node's beat": beat(B_DRIVER),
    "another node's batch": batch(B_DRIVER),
    "a question to the scheduler": status(SCHEDULER),
    "a search for services": subjects.service("PING"),
    "the scheduler's inbox": guessed_inbox(SCHEDULER),
}
"""Subjects that services subscribe to; no identity of a node may reach them."""


OWN = (state(A_DRIVER), event(A_DRIVER), event(TELEMETRY_CLUSTER, "health"))


@pytest.mark.parametrize(
    ("identity", "subject", "data"),
    [
        pytest.param(identity, *sent, id=f"{identity}: {what}")
        for identity, requests in SENT.items()
        for what, sent in requests.items()
    ],
)
async def test_a_forged_reply_subject_has_no_effect(
    guarded: World, identity: Identity, subject: str, data: bytes
) -> None:
    before = await guarded.kept(but=OWN)
    attacker = await guarded.raw_client(identity)

    for where, reply in (STORED | DELIVERED if identity.node else STORED).items():
        await attacker.send(subject, data, reply=reply)

        assert await guarded.kept(but=OWN) == before, where
        assert guarded.deliveries == [], where
    assert attacker.violations == []
    assert (await attacker.ask(subject, data)).data, "it may send this"


def one_account(sign_in: TokenSignIn) -> str:
    """Configure everybody, with the same permissions, in one account together with the streams."""
    settings, (key,) = sign_in.settings(), sign_in.settings().keys
    return f"""
accounts {{
  {ONE} {{ jetstream: enabled }}
  {AUTH} {{ users: [{{nkey: {key}}}] }}
}}
authorization {{
  auth_callout {{
    issuer: {settings.issuer}, xkey: {settings.xkey}, account: {AUTH}, auth_users: [{key}]
  }}
}}
"""


@pytest.mark.parametrize(
    ("identity", "reply"),
    [
        pytest.param(A_DRIVER, state(B_DRIVER), id="a report answered to another's state"),
        pytest.param(A_DRIVER, event(B_DRIVER), id="a report answered to another's event"),
        pytest.param(A_DRIVER, slot(B_DRIVER), id="a report answered to another's slot"),
        pytest.param(A_DRIVER, beat(B_DRIVER), id="a report answered to another's beat"),
        pytest.param(CTL, slot(B_DRIVER), id="information about a stream answered to a slot"),
    ],
)
async def test_forged_replies_would_work_within_one_account(
    identity: Identity, reply: str, sign_in: TokenSignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.bus.callout.account_of", dict.fromkeys(Writer, ONE).__getitem__)
    async with world(sign_in, one_account(sign_in)) as unguarded:
        before = await unguarded.kept(but=OWN)
        attacker = await unguarded.raw_client(identity)

        await attacker.send(*next(iter(SENT[identity].values())), reply=reply)

        after = await unguarded.kept(but=OWN)
        assert (after, unguarded.deliveries) != (before, [])


async def test_an_answer_is_no_request_to_close_a_connection(guarded: World) -> None:
    """Only the account of sign-in imports the server's services."""
    victim, attacker = await guarded.raw_client(B_DRIVER), await guarded.raw_client(A_DRIVER)
    service = await guarded.raw_client(SCHEDULER)
    kick = subjects.kick(victim.client._server_info["server_id"])
    close = b'{"cid": %d}' % victim.client.client_id
    await attacker.ask(state(A_DRIVER), close)

    await service.send(subjects.direct_get(STATE.name, state(A_DRIVER)), reply=kick)
    await guarded.settle()

    assert service.violations == []
    await victim.flush()
    await guarded.monitor.request(kick, close)
    await eventually(lambda: victim.client.is_closed)
