"""Delivery subjects of consumers, and headers that the server obeys, cannot harm others."""

from typing import Any

import msgspec
import pytest

from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.contracts.subjects import COMMANDS, EVENTS, STATE, Stream
from tests.security.identities import (
    A_DRIVER,
    B_DRIVER,
    CTL,
    DISCOVERY_CLUSTER,
    SCHEDULER,
    batch,
    beat,
    check,
    event,
    guessed_inbox,
    slot,
    state,
    status,
)
from tests.security.world import RawClient, World, consumer

READS: dict[Identity, tuple[Stream, str, str]] = {
    CTL: (EVENTS, subjects.cluster_pattern(subjects.Event, "default"), event(A_DRIVER)),
    DISCOVERY_CLUSTER: (
        STATE,
        subjects.cluster_pattern(subjects.State, "default"),
        state(A_DRIVER),
    ),
}
"""By identity: a stream and pattern it may follow, and a subject on it that a node may write."""

DELIVERED = {
    "a slot": slot(B_DRIVER),
    "a check": check(B_DRIVER),
    "another's state": state(B_DRIVER),
    "another's event": event(B_DRIVER),
    "another's beat": beat(B_DRIVER),
    "another's batch": batch(B_DRIVER),
    "a question to the scheduler": status(SCHEDULER),
    "a search for services": subjects.service("PING"),
    "a component's inbox": guessed_inbox(B_DRIVER),
    "emptying STATE": subjects.js_api("STREAM", "PURGE", STATE.name),
    "emptying COMMANDS": subjects.js_api("STREAM", "PURGE", COMMANDS.name),
    "deleting EVENTS": subjects.js_api("STREAM", "DELETE", EVENTS.name),
}

OTHER_FILTERS = {
    "another filter": {"filter_subject": subjects.plane_pattern(subjects.State)},
    "another cluster's": {"filter_subject": subjects.cluster_pattern(subjects.Event, "elsewhere")},
    "no filter": {},
    "several filters": {"filter_subjects": [event(A_DRIVER), event(B_DRIVER)]},
}


async def create(raw: RawClient, name: str, **config: Any) -> Any:
    """Request a consumer on the stream that this identity may follow; return the answer."""
    stream, pattern, _ = READS[raw.identity]
    subject = subjects.js_api("CONSUMER", "CREATE", stream.name, name, pattern)
    return msgspec.json.decode((await raw.ask(subject, consumer(stream.name, name, **config))).data)


@pytest.mark.parametrize("identity", READS, ids=str)
async def test_a_consumer_delivers_to_its_readers_alone(guarded: World, identity: Identity) -> None:
    _, pattern, written = READS[identity]
    await (await guarded.raw_client(A_DRIVER)).ask(written, b"bytes of the attacker's choice")
    before = await guarded.kept()
    attacker = await guarded.raw_client(identity)
    own = f"{subjects.inbox(identity)}.own"
    delivered = await attacker.listen(own)

    for number, (where, target) in enumerate(DELIVERED.items()):
        await create(attacker, f"evil-{number}", filter_subject=pattern, deliver_subject=target)
        assert await guarded.kept() == before, where
        assert guarded.deliveries == [], where
    answer = await create(attacker, "good", filter_subject=pattern, deliver_subject=own)

    assert "error" not in answer
    await guarded.settle()
    assert guarded.deliveries == []
    await attacker.flush()
    assert b"bytes of the attacker's choice" in [msg.data for msg in delivered]


async def test_a_consumers_filter_must_match_its_subject(guarded: World) -> None:
    attacker = await guarded.raw_client(CTL)
    inbox = f"{subjects.inbox(CTL)}.own"
    messages = await attacker.listen(inbox)

    for what, config in OTHER_FILTERS.items():
        answer = await create(attacker, "evil", deliver_subject=inbox, **config)
        assert "error" in answer, what
    await guarded.settle()
    await attacker.flush()
    assert messages == []


HEADERS = {
    "roll up the stream": {"Nats-Rollup": "all"},
    "roll up a subject": {"Nats-Rollup": "sub"},
    "send another's state later": {
        "Nats-Schedule": "@every 1s",
        "Nats-Schedule-Target": state(B_DRIVER),
    },
    "trace to another's state": {"Nats-Trace-Dest": state(B_DRIVER)},
    "trace to a slot": {"Nats-Trace-Dest": slot(B_DRIVER)},
    "trace to a beat": {"Nats-Trace-Dest": beat(B_DRIVER)},
    "expect another stream": {"Nats-Expected-Stream": COMMANDS.name},
}


async def test_headers_do_not_affect_other_messages(guarded: World) -> None:
    own = (state(A_DRIVER),)
    before = await guarded.kept(but=own)
    attacker = await guarded.raw_client(A_DRIVER)

    for what, headers in HEADERS.items():
        await attacker.send(state(A_DRIVER), b"mine", headers=headers)

        assert await guarded.kept(but=own) == before, what
        assert guarded.deliveries == [], what


async def test_headers_of_a_report_do_not_pass_for_the_servers(guarded: World) -> None:
    attacker = await guarded.raw_client(A_DRIVER)
    headers = {"Nats-Subject": state(B_DRIVER), "Nats-Sequence": "999", "Nats-Stream": "EVIL"}
    stored = msgspec.json.decode((await attacker.ask(state(A_DRIVER), b"x", headers=headers)).data)

    read = await guarded.scheduler.last(STATE, state(A_DRIVER))

    assert read is not None
    assert (read.subject, read.sequence) == (state(A_DRIVER), stored["seq"])
