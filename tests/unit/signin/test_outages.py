"""What sign-in does while it is overloaded, or while the API server is away or slow."""

from typing import Any

import pytest

from libs.bus.callout import CalloutKeys, new_seeds
from libs.testing.apiserver.faults import Delay, Fault, Hang, RefuseRequest
from services.signin.responder import MAX_AGE, MAX_LATE, MAX_QUEUE, MAX_QUEUED
from tests.unit.signin.world import Agent, World, in_world, play


async def known_and_unknown(world: World) -> tuple[Agent, Agent]:
    """Return two agents: the pod of the first was known before the API server stopped."""
    known = await world.agent("driver", "gpu-1")
    await world.settled()
    world.server.faults.add(Fault(effect=Hang(), verbs=("watch", "list"), user="us"))
    await world.server.restart()
    return known, await world.agent("telemetry", "gpu-2")


@in_world
async def test_known_holders_are_admitted_while_the_api_server_is_away(world: World) -> None:
    agent = await world.agent()
    token = agent.token()
    await world.settled()
    await world.server.stop()
    for _ in range(10):
        assert (await world.sign_in(token)).error == ""
    await world.clock.sleep(600)
    assert (await world.sign_in(token)).error == ""
    assert world.value("reviews_total", outcome="accepted") == 0
    await world.server.start()
    await world.clock.sleep(120)
    assert world.value("reviews_total", outcome="accepted") == 1


@in_world
async def test_a_token_that_expires_while_the_api_server_is_away_is_not_reviewed(
    world: World,
) -> None:
    """Its session goes on, and the API server might refuse it by its own clock."""
    agent = await world.agent()
    await world.settled()
    await world.server.stop()
    ends = agent.claims()["exp"]
    assert (await world.sign_in(agent.token(jti="expired", exp=ends))).error == ""
    world.connections.open = [agent.session("expired")]
    await world.clock.sleep(ends - world.clock.now())
    await world.server.start()
    await world.clock.sleep(600)
    outcomes = ("accepted", "refused")
    assert [world.value("reviews_total", outcome=each) for each in outcomes] == [0, 0]
    assert world.connections.closed == []


@pytest.mark.parametrize("effect", [Hang(), RefuseRequest(503), RefuseRequest(429)])
def test_unknown_holders_are_admitted_by_their_signature_and_reviewed_later(effect: Any) -> None:
    async def story(world: World) -> None:
        _, unknown = await known_and_unknown(world)
        fault = world.server.faults.add(Fault(effect=effect, kind="TokenReview"))
        began = world.clock.monotonic()
        assert (await world.sign_in(unknown.token())).error == ""
        assert world.clock.monotonic() - began < 3.0
        world.server.faults.remove(fault)
        await world.clock.sleep(60)
        assert world.value("reviews_total", outcome="accepted") == 1

    logs = play(story)
    events = [line["event"] for line in logs]
    assert "tokens are reviewed again" in events


@in_world
async def test_unknown_holders_are_reviewed_first(world: World) -> None:
    known, unknown = await known_and_unknown(world)
    assert (await world.sign_in(unknown.token())).error == ""
    assert world.value("reviews_total", outcome="accepted") == 1
    token = unknown.token()
    await world.delete(unknown)
    answer = await world.sign_in(token)
    assert "service account token has been invalidated" in answer.error
    assert (await world.sign_in(known.token())).error == ""


def test_a_review_that_refuses_closes_the_session_that_was_admitted_without_it() -> None:
    async def story(world: World) -> None:
        _, unknown = await known_and_unknown(world)
        fault = world.server.faults.add(Fault(effect=RefuseRequest(503), kind="TokenReview"))
        token = unknown.token(jti="refused")
        assert (await world.sign_in(token)).error == ""
        session, other = unknown.session("refused"), unknown.session("other")
        world.connections.open = [session, other]
        await world.delete(unknown)
        await world.clock.sleep(30)
        assert world.connections.closed == []
        world.server.faults.remove(fault)
        await world.clock.sleep(60)
        assert world.connections.closed == [session]
        assert "refused this token before" in (await world.sign_in(token)).error

    logs = play(story)
    (line,) = [line for line in logs if line["event"] == "session closed: its token is refused"]
    assert "has been invalidated" in line["why"]


@in_world
async def test_a_token_is_reviewed_once_however_often_it_signs_in(world: World) -> None:
    agent = await world.agent()
    await world.settled()
    first, second = agent.token(), agent.token()
    for _ in range(20):
        assert (await world.sign_in(first)).error == ""
    await world.clock.sleep(60)
    assert world.value("reviews_total", outcome="accepted") == 1
    await world.sign_in(second)
    await world.sign_in(first)
    await world.clock.sleep(60)
    assert world.value("reviews_total", outcome="accepted") == 2


@in_world
async def test_reviews_in_the_background_are_paced(world: World) -> None:
    agent = await world.agent()
    await world.settled()
    for _ in range(300):
        world.ask(agent.token())
    await world.clock.sleep(2.0)
    assert 80 <= world.value("reviews_total", outcome="accepted") <= 120
    await world.clock.sleep(6.0)
    assert world.value("reviews_total", outcome="accepted") == 300


@in_world
async def test_slow_reviews_do_not_delay_known_holders(world: World) -> None:
    known, unknown = await known_and_unknown(world)
    world.server.faults.add(Fault(effect=Delay(60.0), kind="TokenReview"))
    slow = [world.ask(unknown.token()) for _ in range(200)]
    began = world.clock.monotonic()
    assert (await world.sign_in(known.token())).error == ""
    assert world.clock.monotonic() - began < 0.1
    await world.clock.sleep(4.0)
    assert {world.answer(reply) is not None for reply in slow} == {True}


@in_world
async def test_a_request_that_waited_too_long_is_dropped_before_any_cryptography(
    world: World,
) -> None:
    agent = await world.agent()
    await world.settled()
    world.send_seconds = MAX_AGE + 0.1
    world.ask(agent.token())
    world.parts.responder.received(b"opening this would fail", world.nats.xkey, "reply")
    await world.clock.sleep(0.01)
    assert world.value("queue") == 1
    opened = world.value("cpu_seconds_total", part="open")
    await world.clock.sleep(MAX_AGE + 1.0)
    assert world.value("dropped_total", reason="old") == 1
    assert world.value("dropped_total", reason="unreadable") == 0
    assert world.value("cpu_seconds_total", part="open") == opened
    world.send_seconds = 0.0
    assert (await world.sign_in(agent.token())).error == ""


@in_world
async def test_a_verdict_that_comes_too_late_is_not_sent(world: World) -> None:
    known, unknown = await known_and_unknown(world)
    world.server.faults.add(Fault(effect=Hang(), kind="TokenReview"))
    world.send_seconds = MAX_AGE - 1.0
    first = world.ask(known.token())
    late = world.ask(unknown.token())
    await world.clock.sleep(20.0)
    assert world.answer(first) is not None
    assert late not in world.answers
    assert world.value("dropped_total", reason="old") == 1
    assert world.value("answers_total", result="granted") == 1


@in_world
async def test_the_queue_is_bounded_by_requests_and_bytes(world: World) -> None:
    for _ in range(MAX_QUEUE + 5):
        world.parts.responder.received(b"x", world.nats.xkey, "reply")
    assert world.value("queue") == MAX_QUEUE
    assert world.value("dropped_total", reason="queue") == 5
    await world.settled()
    assert world.value("queue") == 0
    assert world.value("dropped_total", reason="unreadable") == MAX_QUEUE
    big = b"x" * (MAX_QUEUED // 4)
    for _ in range(6):
        world.parts.responder.received(big, world.nats.xkey, "reply")
    assert world.value("queue") == 4
    assert world.value("dropped_total", reason="queue") == 7


@in_world
async def test_a_host_without_tokens_delays_no_other_host(world: World) -> None:
    """Each refusal takes long here, and there are more of them than nats-server waits for."""
    agent = await world.agent()
    await world.settled()
    world.send_seconds = 0.02
    for _ in range(2 * int(MAX_AGE / world.send_seconds)):
        world.ask("", host="10.9.9.9")
    began = world.clock.monotonic()
    assert (await world.sign_in(agent.token())).error == ""
    assert world.clock.monotonic() - began < 1.0
    # A client with a token behind the same address is admitted when the others are done.
    await world.clock.sleep(MAX_AGE)
    reply = world.ask(agent.token(), host="10.9.9.9")
    await world.clock.sleep(MAX_AGE)
    answer = world.answer(reply)
    assert answer is not None
    assert answer.error == ""


@in_world
async def test_what_waits_of_hosts_beyond_their_shares_is_bounded(world: World) -> None:
    world.send_seconds = MAX_AGE / 100
    for _ in range(MAX_LATE + 500):
        world.ask("", host="10.9.9.9")
    await world.clock.sleep(3 * MAX_AGE)
    assert world.value("dropped_total", reason="queue") > 0
    dropped = [world.value("dropped_total", reason=each) for each in ("queue", "old")]
    assert len(world.answers) + sum(dropped) == MAX_LATE + 500


@in_world
async def test_a_request_to_other_keys_is_not_answered(world: World) -> None:
    agent = await world.agent()
    await world.settled()
    reply = world.ask(agent.token(), keys=CalloutKeys.from_seeds(*new_seeds()))
    await world.settled()
    assert reply not in world.answers
    assert world.value("dropped_total", reason="unreadable") == 1


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_a_wrong_clock_of_the_servers_machine_is_logged(ahead: int) -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        for _ in range(100):
            data = world.nats.ask(world.keys, agent.token(), clock_ahead=ahead)
            world.parts.responder.received(data, world.nats.xkey, "reply")
        await world.settled()
        assert "reply" not in world.answers
        reason = "old" if ahead < 0 else "unreadable"
        assert world.value("dropped_total", reason=reason) == 100
        assert (await world.sign_in(agent.token())).error == ""

    event = "a request of nats-server cannot be answered"
    (line,) = [line for line in play(story) if line["event"] == event]
    assert "3600.0 s" in line["why"]
    assert "clock" in line["why"]


def test_a_request_that_fails_does_not_end_the_process() -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        judge = world.parts.objects.judge
        world.parts.objects.judge = lambda _holder: 1 // 0  # pyright: ignore[reportAttributeAccessIssue]
        world.ask(agent.token())
        await world.settled()
        world.parts.objects.judge = judge
        assert world.value("dropped_total", reason="failed") == 1
        assert (await world.sign_in(agent.token())).error == ""

    logs = play(story)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "a client was not answered"
    ]
