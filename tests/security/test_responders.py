"""A responder answers only to inboxes of permitted queriers, whatever the reply subject."""

import pytest

from libs.bus.queries import QueryResponder
from libs.contracts import subjects
from libs.contracts.message import decode, encode
from libs.contracts.queries import QueryVerb, StatusAnswer, StatusQuery
from libs.contracts.subjects import COMMANDS
from libs.testing.simulation import make_env
from tests.security.identities import (
    B_DRIVER,
    CTL,
    SCHEDULER,
    beat,
    check,
    event,
    guessed_inbox,
    notification,
    slot,
    state,
    status,
)
from tests.security.world import World

FORBIDDEN = {
    "a slot": slot(B_DRIVER),
    "a check": check(B_DRIVER),
    "state": state(B_DRIVER),
    "an event of the scheduler": event(SCHEDULER, "step"),
    "a beat": beat(B_DRIVER),
    "a notification": notification(slot(B_DRIVER)),
    "a component's inbox": guessed_inbox(B_DRIVER),
    "another cluster": guessed_inbox(SCHEDULER).replace("default", "elsewhere"),
    "emptying a stream": subjects.js_api("STREAM", "PURGE", COMMANDS.name),
    "a question": status(SCHEDULER),
}
QUERIES = {"a question": status(SCHEDULER), "a search": subjects.service("PING")}


async def status_answer(_: StatusQuery) -> StatusAnswer:
    return StatusAnswer(at=1.0, leader="me")


def scheduler(world: World) -> QueryResponder:
    return QueryResponder(
        bus=world.scheduler,
        env=make_env(),
        name="scheduler",
        version="1.0.0",
        handlers={QueryVerb.STATUS: status_answer},
        concurrent=4,
    )


@pytest.mark.parametrize("subject", QUERIES.values(), ids=QUERIES)
async def test_a_responder_answers_only_allowed_inboxes(guarded: World, subject: str) -> None:
    before = await guarded.kept()
    asker = await guarded.raw_client(CTL)
    async with scheduler(guarded) as responder:
        for count, reply in enumerate(FORBIDDEN.values(), 1):
            await asker.send(subject, encode(StatusQuery()), reply=reply)
            # Queries are handled in order: this answer proves that the last one was handled.
            answer = await asker.ask(status(SCHEDULER), encode(StatusQuery()))
            assert decode(StatusAnswer, answer.data).leader == "me"
            assert responder.undeliverable == count, reply
        await responder.drain()

    assert await guarded.kept() == before
    deliveries = {(each.by, each.subject) for each in guarded.deliveries}
    assert deliveries <= {(SCHEDULER, status(SCHEDULER)), (SCHEDULER, subjects.service("PING"))}
