"""A service that answers can be asked to answer elsewhere: it does so to none but who may ask."""

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
    poke,
    slot,
    state,
    status,
)
from tests.security.world import World

ELSEWHERE = {
    "a slot": slot(B_DRIVER),
    "a check": check(B_DRIVER),
    "state": state(B_DRIVER),
    "an event of the scheduler": event(SCHEDULER, "step"),
    "a beat": beat(B_DRIVER),
    "a poke": poke(slot(B_DRIVER)),
    "a component's inbox": guessed_inbox(B_DRIVER),
    "another cluster": guessed_inbox(SCHEDULER).replace("default", "elsewhere"),
    "emptying a stream": subjects.js_api("STREAM", "PURGE", COMMANDS.name),
    "a question": status(SCHEDULER),
}
ASKED = {"a question": status(SCHEDULER), "a search": subjects.service("PING")}


async def stands(_: StatusQuery) -> StatusAnswer:
    return StatusAnswer(at=1.0, leader="me")


def scheduler(world: World) -> QueryResponder:
    return QueryResponder(
        bus=world.scheduler,
        env=make_env(),
        name="scheduler",
        version="1.0.0",
        handlers={QueryVerb.STATUS: stands},
        concurrent=4,
    )


@pytest.mark.parametrize("subject", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("reply", ELSEWHERE.values(), ids=ELSEWHERE)
async def test_a_responder_answers_only_allowed_inboxes(
    guarded: World, subject: str, reply: str
) -> None:
    before = await guarded.kept()
    asker = await guarded.raw_client(CTL)
    async with scheduler(guarded) as responder:
        await asker.send(subject, encode(StatusQuery()), reply=reply)
        # The next question is answered after the one before it was looked at.
        answer = await asker.ask(status(SCHEDULER), encode(StatusQuery()))
        await responder.drain()

    assert decode(StatusAnswer, answer.data).leader == "me"
    assert responder.undeliverable == 1
    assert await guarded.kept() == before
    deliveries = {(each.by, each.subject) for each in guarded.deliveries}
    assert deliveries <= {(SCHEDULER, status(SCHEDULER)), (SCHEDULER, subjects.service("PING"))}
