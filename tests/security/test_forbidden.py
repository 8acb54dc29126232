"""Publishes and subscriptions that an identity must not make: the server refuses them."""

import pytest

from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.contracts.subjects import ANY, AUDIT, COMMANDS, EVENTS, STATE, Stream
from tests.security.identities import (
    A_DRIVER,
    A_TELEMETRY,
    B_DRIVER,
    B_TELEMETRY,
    CTL,
    DISCOVERY_CLUSTER,
    DRIVER_CLUSTER,
    ELSEWHERE,
    SCHEDULER,
    TELEMETRY_CLUSTER,
    audit_check,
    batch,
    beat,
    check,
    event,
    guessed_inbox,
    journal,
    notification,
    slot,
    state,
    status,
)
from tests.security.world import World, consumer

ALL_COMMANDS = subjects.cluster_pattern(subjects.Command, "default")
ALL_STATE = subjects.cluster_pattern(subjects.State, "default")
ALL_EVENTS = subjects.cluster_pattern(subjects.Event, "default")
ALL_BEATS = subjects.cluster_pattern(subjects.Beat, "default")
ALL_BATCHES = subjects.cluster_pattern(subjects.Telemetry, "default")
ALL_JOURNALS = subjects.cluster_pattern(subjects.Journal, "default")
ALL_ANSWERS = f"{subjects.inbox(B_DRIVER).split('.')[0]}.>"


def create(stream: Stream, pattern: str) -> str:
    return subjects.js_api("CONSUMER", "CREATE", stream.name, "evil", pattern)


def of(stream: Stream, verb: str) -> str:
    return subjects.js_api("STREAM", verb, stream.name)


def read(subject: str, stream: Stream = COMMANDS) -> str:
    return subjects.direct_get(stream.name, subject)


PUBLISHED: dict[Identity, dict[str, str]] = {
    A_DRIVER: {
        "state of another node": state(B_DRIVER),
        "state of another component": state(A_TELEMETRY),
        "state of a kind that it does not send": state(A_DRIVER, "evidence"),
        "state of an unknown kind": state(A_DRIVER, "invented"),
        "answer to a check that it was not asked for": state(A_DRIVER, "facts", "scheduler"),
        "answer to an asker that sends no checks": state(A_DRIVER, "holders", "ctl"),
        "event of a kind that it does not send": event(A_DRIVER, "evidence"),
        "event of an unknown kind": event(A_DRIVER, "invented"),
        "answer to a check of another node": state(B_DRIVER, "preflight", "scheduler"),
        "state under a subject that is too long": f"{state(A_DRIVER, 'facts', 'scheduler')}.x",
        "beat of another node": beat(B_DRIVER),
        "beat of another component": beat(A_TELEMETRY),
        "batch of its own node": batch(A_DRIVER),
        "journal of another node": journal(B_DRIVER),
        "journal of another component": journal(A_TELEMETRY),
        "answer to a check of the audit as a report": state(A_DRIVER, "holders", AUDIT),
        "event of another node": event(B_DRIVER),
        "event of another component": event(A_TELEMETRY),
        "event of the scheduler": event(SCHEDULER, "step"),
        "event of the scheduler on its own node": str(
            subjects.Event(cluster="default", node=A_DRIVER.node, writer="scheduler", kind="step")
        ),
        "command to another node": slot(B_DRIVER),
        "command to itself": slot(A_DRIVER),
        "check of another node": check(B_DRIVER),
        "check of itself": check(A_DRIVER),
        "notification": notification(slot(B_DRIVER)),
        "answer into another's inbox": guessed_inbox(B_DRIVER),
        "answer into the scheduler's inbox": guessed_inbox(SCHEDULER),
        "question to the scheduler": status(SCHEDULER),
        "search for services": subjects.service("PING"),
        "read another node's slot": read(slot(B_DRIVER)),
        "read another component's slot": read(slot(A_TELEMETRY)),
        "read another node's check": read(check(B_DRIVER)),
        "read another node's check of the audit": read(audit_check(B_DRIVER)),
        "read any slot": subjects.js_api("DIRECT", "GET", COMMANDS.name),
        "read any message": subjects.js_api("STREAM", "MSG", "GET", COMMANDS.name),
        "read its own state": read(state(A_DRIVER), STATE),
        "follow commands": create(COMMANDS, slot(A_DRIVER)),
        "follow state": create(STATE, ALL_STATE),
        "follow events": create(EVENTS, ALL_EVENTS),
        "make a durable consumer": subjects.js_api(
            "CONSUMER", "DURABLE", "CREATE", COMMANDS.name, "evil"
        ),
        "pull": subjects.js_api("CONSUMER", "MSG", "NEXT", COMMANDS.name, "evil"),
        "list streams": subjects.js_api("STREAM", "NAMES"),
        "look at a stream": of(STATE, "INFO"),
        "make a stream": of(STATE, "CREATE"),
        "change a stream": of(STATE, "UPDATE"),
        "empty a stream": of(STATE, "PURGE"),
        "delete a stream": of(STATE, "DELETE"),
        "delete a message": subjects.js_api("STREAM", "MSG", "DELETE", STATE.name),
        "restore a stream": of(STATE, "RESTORE"),
        "flow control": subjects.flow_control(STATE.name).replace(">", "scheduler-1.1"),
    },
    A_TELEMETRY: {
        "batch of another node": batch(B_TELEMETRY),
        "state of another component": state(A_DRIVER),
        "command to another component": slot(A_DRIVER),
    },
    TELEMETRY_CLUSTER: {
        "command": slot(B_DRIVER),
        "check, though it is no asker": check(B_DRIVER, TELEMETRY_CLUSTER),
        "state": state(B_DRIVER),
        "beat": beat(B_DRIVER),
        "batch": batch(B_DRIVER),
        "event of the scheduler": event(SCHEDULER, "step"),
        "event of a kind that it does not send": event(TELEMETRY_CLUSTER, "step"),
        "event of a component": event(B_DRIVER),
        "read a slot": read(slot(B_DRIVER)),
        "follow commands": create(COMMANDS, ALL_COMMANDS),
        "follow events": create(EVENTS, ALL_EVENTS),
        "empty a stream": of(STATE, "PURGE"),
        "answer into a component's inbox": guessed_inbox(B_DRIVER),
    },
    DRIVER_CLUSTER: {
        "command": slot(B_DRIVER),
        "check": check(B_DRIVER, DRIVER_CLUSTER),
        "check of another asker": check(B_DRIVER, SCHEDULER),
        "check of the audit": audit_check(B_DRIVER),
        "read a command": read(slot(B_DRIVER)),
        "read another asker's check": read(check(B_DRIVER, SCHEDULER)),
        "state": state(B_DRIVER),
        "question to the scheduler": status(SCHEDULER),
    },
    SCHEDULER: {
        "state": state(B_DRIVER),
        "beat": beat(B_DRIVER),
        "batch": batch(B_DRIVER),
        "event of a component": event(B_DRIVER),
        "event of another service": event(DRIVER_CLUSTER, "operand"),
        "check of another asker": check(B_DRIVER, DRIVER_CLUSTER),
        "journal": journal(B_DRIVER),
        "notification": notification(slot(B_DRIVER)),
        "answer into a component's inbox": guessed_inbox(B_DRIVER),
        "empty the events": of(EVENTS, "PURGE"),
        "delete a stream": of(STATE, "DELETE"),
        "make another stream": subjects.js_api("STREAM", "CREATE", "EVIL"),
    },
    CTL: {
        "command": slot(B_DRIVER),
        "check": check(B_DRIVER),
        "check of the audit": audit_check(B_DRIVER),
        "journal": journal(B_DRIVER),
        "state": state(B_DRIVER),
        "beat": beat(B_DRIVER),
        "event": event(SCHEDULER, "step"),
        "event of its own": event(CTL, "edit"),
        "answer to a querier": guessed_inbox(SCHEDULER),
        "read a slot": read(slot(B_DRIVER)),
        "read state": read(state(B_DRIVER), STATE),
        "follow state": create(STATE, ALL_STATE),
        "follow commands": create(COMMANDS, ALL_COMMANDS),
        "empty the events": of(EVENTS, "PURGE"),
        "delete an event": subjects.js_api("STREAM", "MSG", "DELETE", EVENTS.name),
        "make a stream": of(EVENTS, "CREATE"),
        "ask in another cluster": status(ELSEWHERE),
    },
    ELSEWHERE: {
        "command": slot(B_DRIVER),
        "check": check(B_DRIVER),
        "event": event(SCHEDULER, "step"),
        "read a slot": read(slot(B_DRIVER)),
        "read state": read(state(B_DRIVER), STATE),
        "follow commands": create(COMMANDS, ALL_COMMANDS),
        "follow state": create(STATE, ALL_STATE),
        "answer to a querier of this cluster": guessed_inbox(SCHEDULER),
    },
}

SUBSCRIBED: dict[Identity, dict[str, str]] = {
    A_DRIVER: {
        "notifications of another node": notification(slot(B_DRIVER)),
        "notifications of another component": notification(slot(A_TELEMETRY)),
        "notifications of another node's checks": notification(check(B_DRIVER)),
        "all notifications": subjects.NOTIFIES,
        "inbox of another node": f"{subjects.inbox(B_DRIVER)}.>",
        "inbox of another component": f"{subjects.inbox(A_TELEMETRY)}.>",
        "inboxes of the services": subjects.querier_inboxes("default"),
        "every inbox": ALL_ANSWERS,
        "everything": ">",
        "any first token": f"{ANY}.>",
        "commands": ALL_COMMANDS,
        "state": ALL_STATE,
        "its own state": state(A_DRIVER),
        "beats": ALL_BEATS,
        "batches": ALL_BATCHES,
        "journals": ALL_JOURNALS,
        "events": ALL_EVENTS,
        "questions": status(SCHEDULER),
        "searches for services": subjects.service("PING"),
        "calls of the API": subjects.js_api(">"),
        "the server's own": "$SYS.>",
    },
    TELEMETRY_CLUSTER: {
        "questions to the scheduler": status(SCHEDULER),
        "inbox of the scheduler": f"{subjects.inbox(SCHEDULER)}.>",
        "every inbox": ALL_ANSWERS,
        "notifications": subjects.NOTIFIES,
        "everything": ">",
    },
    DRIVER_CLUSTER: {"batches": ALL_BATCHES, "notifications": notification(slot(B_DRIVER))},
    SCHEDULER: {
        "questions to another service": status(TELEMETRY_CLUSTER),
        "inbox of ctl": f"{subjects.inbox(CTL)}.>",
        "inbox of a component": f"{subjects.inbox(B_DRIVER)}.>",
        "everything": ">",
    },
    CTL: {
        "questions of others": status(SCHEDULER),
        "inbox of the scheduler": f"{subjects.inbox(SCHEDULER)}.>",
        "beats": ALL_BEATS,
        "batches": ALL_BATCHES,
        "journals": ALL_JOURNALS,
        "notifications": subjects.NOTIFIES,
        "everything": ">",
    },
    DISCOVERY_CLUSTER: {"batches": ALL_BATCHES, "journals": ALL_JOURNALS},
    ELSEWHERE: {"beats": ALL_BEATS, "questions": status(SCHEDULER)},
}


@pytest.mark.parametrize("identity", PUBLISHED, ids=str)
async def test_forbidden_publishes_are_denied(guarded: World, identity: Identity) -> None:
    before = await guarded.kept()
    attacker = await guarded.raw_client(identity)
    inbox = f"{subjects.inbox(identity)}.answer"
    answers = await attacker.listen(inbox)
    attempts = PUBLISHED[identity].values()

    for subject in attempts:
        await attacker.send(subject, consumer("STATE", "evil"), reply=inbox)

    assert attacker.violations == [
        f'nats: permissions violation for publish to "{subject}"'.lower() for subject in attempts
    ]
    assert await guarded.kept() == before
    assert guarded.deliveries == []
    await attacker.flush()
    assert answers == []


@pytest.mark.parametrize("identity", SUBSCRIBED, ids=str)
async def test_forbidden_subscriptions_are_denied(guarded: World, identity: Identity) -> None:
    attacker = await guarded.raw_client(identity)
    attempts = SUBSCRIBED[identity].values()

    messages = await attacker.listen(*attempts)

    assert attacker.violations == [
        f'nats: permissions violation for subscription to "{pattern}"'.lower()
        for pattern in attempts
    ]
    await send_on_every_plane(guarded)
    assert {each.by for each in guarded.deliveries} >= {B_DRIVER, SCHEDULER}
    await attacker.flush()
    assert messages == []


async def send_on_every_plane(world: World) -> None:
    """Send messages on every plane to and from the identities that are spied on."""
    for owner in (B_DRIVER, A_TELEMETRY):
        await world.scheduler.store(COMMANDS, slot(owner), b"do that")
        await world.scheduler.store(COMMANDS, check(owner), b"and that?")
        raw = await world.raw_client(owner)
        await raw.ask(state(owner), b"facts")
        await raw.ask(event(owner), b"event")
        await raw.send(beat(owner), b"beat")
    await (await world.raw_client(A_TELEMETRY)).send(batch(A_TELEMETRY), b"batch")
    await (await world.raw_client(CTL)).send(status(SCHEDULER), b"?", reply=guessed_inbox(CTL))
    await world.settle()
