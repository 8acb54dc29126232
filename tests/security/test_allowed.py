"""Our own client may do everything that each identity needs, on the guarded server."""

import pytest

from libs.bus.nats.bus import NatsBus
from libs.bus.port import (
    BusUnavailable,
    FromSequence,
    LastPerSubject,
    SequenceConflict,
    StartFrom,
    SubjectForbidden,
)
from libs.bus.read_stream import read_stream
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.contracts.subjects import ANY, COMMANDS, EVENTS, STATE, STREAMS, Stream
from tests.component.bus.recorders import RecordingFollower
from tests.security.identities import (
    A_DRIVER,
    A_TELEMETRY,
    B_DRIVER,
    BYSTANDER,
    CTL,
    DISCOVERY_CLUSTER,
    DRIVER_CLUSTER,
    ELSEWHERE,
    SCHEDULER,
    TELEMETRY_CLUSTER,
    VALIDATOR_CLUSTER,
    audit_check,
    batch,
    beat,
    check,
    event,
    journal,
    notification,
    slot,
    state,
    status,
)
from tests.security.world import World
from tests.support import eventually

CLUSTER_ROLES = (
    *(SCHEDULER, DISCOVERY_CLUSTER, DRIVER_CLUSTER, VALIDATOR_CLUSTER, TELEMETRY_CLUSTER),
)

PUBLISHED_KINDS = {
    SCHEDULER: ("step", "leader"),
    DRIVER_CLUSTER: ("operand",),
    TELEMETRY_CLUSTER: ("health",),
}


class Recorder:
    """Record received messages and their reply subjects."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[str, bytes]] = []
        self.replies: list[str] = []

    def __call__(self, subject: str, data: bytes, reply: str) -> None:
        self.deliveries.append((subject, data))
        self.replies.append(reply)


async def content(
    bus: NatsBus, stream: Stream, pattern: str, start: StartFrom
) -> list[tuple[str, bytes]]:
    """Return subject and data of the messages in the stream."""
    messages = await read_stream(bus, stream, pattern, start=start)
    return [(each.subject, each.data) for each in messages]


@pytest.mark.parametrize("identity", [A_DRIVER, A_TELEMETRY, B_DRIVER], ids=str)
async def test_a_component_reports_and_publishes_events(guarded: World, identity: Identity) -> None:
    bus = await guarded.bus(identity)
    answer = state(identity, "refusal", SCHEDULER.writer)

    first = await bus.store(STATE, state(identity), b"facts", id="one")
    assert await bus.store(STATE, state(identity), b"facts", id="one") == first
    await bus.store(STATE, answer, b"none holds")
    await bus.store(EVENTS, event(identity), b"done", id="two")
    await bus.publish(beat(identity), b"alive")

    kept = await guarded.kept()
    assert [(subject, data) for _, subject, data in kept["state"] if data != b"my facts"] == [
        (state(identity), b"facts"),
        (answer, b"none holds"),
    ]
    assert (event(identity), b"done") in [(subject, data) for _, subject, data in kept["event"]]
    assert [(each.subject, each.data) for each in guarded.deliveries] == [
        (beat(identity), b"alive")
    ]


async def test_a_report_of_the_largest_size_arrives(guarded: World) -> None:
    bus = await guarded.bus(A_DRIVER)
    await bus.store(STATE, state(A_DRIVER), bytes(STATE.max_message - 1024))
    stored = await guarded.scheduler.last(STATE, state(A_DRIVER))
    assert stored is not None
    assert len(stored.data) == STATE.max_message - 1024


async def test_a_component_is_commanded_and_checked(guarded: World) -> None:
    agent = await guarded.bus(A_DRIVER)
    recorder = Recorder()
    every_asker = check(A_DRIVER).rpartition(".")[0] + f".{subjects.ANY}"
    await agent.subscribe(notification(slot(A_DRIVER)), recorder)
    await agent.subscribe(notification(every_asker), recorder)
    question = check(A_DRIVER)

    await guarded.scheduler.store(COMMANDS, slot(A_DRIVER), b"swap")
    await guarded.scheduler.store(COMMANDS, question, b"which pods?")

    await eventually(lambda: len(recorder.deliveries) == 2)
    assert {subject for subject, _ in recorder.deliveries} == {
        notification(slot(A_DRIVER)),
        notification(question),
    }
    for subject, data in ((slot(A_DRIVER), b"swap"), (question, b"which pods?")):
        stored = await agent.last(COMMANDS, subject)
        assert stored is not None
        assert stored.data == data
    read = await guarded.scheduler.last(COMMANDS, question)
    assert read is not None
    assert read.data == b"which pods?"


async def test_batches_reach_their_collector(guarded: World) -> None:
    await (await guarded.bus(A_TELEMETRY)).publish(batch(A_TELEMETRY), b"batch")
    await guarded.settle()
    assert [each for each in guarded.deliveries if each.by == TELEMETRY_CLUSTER] == [
        (TELEMETRY_CLUSTER, batch(A_TELEMETRY), b"batch")
    ]


async def test_a_new_leader_reads_the_last_waits_alone(guarded: World) -> None:
    scheduler, wait = await guarded.bus(SCHEDULER), event(SCHEDULER, "wait")
    for subject, data in ((event(SCHEDULER, "step"), b"step"), (wait, b"first"), (wait, b"last")):
        await scheduler.store(EVENTS, subject, data)
    pattern = subjects.Event(cluster="default", node=ANY, writer="scheduler", kind="wait")
    held = await content(scheduler, EVENTS, str(pattern), LastPerSubject())
    assert held == [(wait, b"last")]


async def test_the_scheduler_asks_for_a_journal_and_receives_it(guarded: World) -> None:
    scheduler, agent = await guarded.bus(SCHEDULER), await guarded.bus(B_DRIVER)
    pages, asked = Recorder(), Recorder()
    await scheduler.subscribe(subjects.cluster_pattern(subjects.Journal, "default"), pages)
    await agent.subscribe(notification(check(B_DRIVER).replace("scheduler", ANY)), asked)
    await scheduler.store(COMMANDS, audit_check(B_DRIVER), b"what did you do?")
    await eventually(lambda: len(asked.deliveries) == 1)
    stored = await agent.last(COMMANDS, audit_check(B_DRIVER))
    assert stored is not None
    assert stored.data == b"what did you do?"
    await agent.publish(journal(B_DRIVER), b"page")
    await eventually(lambda: pages.deliveries == [(journal(B_DRIVER), b"page")])


@pytest.mark.parametrize("identity", CLUSTER_ROLES, ids=str)
async def test_a_service_reads_state_and_beats_publishes_events_and_answers(
    guarded: World, identity: Identity
) -> None:
    bus, ctl = await guarded.bus(identity), await guarded.bus(CTL)
    beats, queries = Recorder(), Recorder()
    await bus.subscribe(subjects.cluster_pattern(subjects.Beat, "default"), beats)
    await bus.subscribe(status(identity), queries, group="q")
    searches = [
        (verb, *tokens)
        for verb in ("PING", "INFO", "STATS")
        for tokens in ((), (identity.writer,), (identity.writer, "1"))
    ]
    for search in searches:
        await bus.subscribe(subjects.service(*search), queries)

    pattern = subjects.cluster_pattern(subjects.State, "default")
    held = await content(bus, STATE, pattern, LastPerSubject())
    assert (state(B_DRIVER), b"my facts") in held
    for kind in PUBLISHED_KINDS.get(identity, ()):
        await bus.store(EVENTS, event(identity, kind), b"changed")
    await (await guarded.bus(B_DRIVER)).publish(beat(B_DRIVER), b"alive")
    await eventually(lambda: (beat(B_DRIVER), b"alive") in beats.deliveries)
    for number, subject in enumerate(
        [status(identity), *(subjects.service(*search) for search in searches)], 1
    ):
        await ctl.publish(subject, b"how is it?")
        await eventually(lambda number=number: len(queries.deliveries) == number)
    assert [subject for subject, _ in queries.deliveries[1:]] == [
        subjects.service(*each) for each in searches
    ]

    answers = Recorder()
    inbox = f"{subjects.inbox(CTL)}.answers"
    await ctl.subscribe(inbox, answers)
    await bus.publish(inbox, b"well")
    await eventually(lambda: answers.deliveries == [(inbox, b"well")])


async def test_ctl_reads_stored_and_new_events(guarded: World) -> None:
    ctl, follower = await guarded.bus(CTL), RecordingFollower()
    pattern = str(subjects.Event(cluster="default", node="*", writer="*", kind="*"))
    subscription = await ctl.follow(EVENTS, pattern, follower, start=FromSequence())
    await eventually(lambda: "caught up" in follower.calls)
    assert b"my event" in [each.data for each in follower.messages]

    await guarded.scheduler.store(EVENTS, event(SCHEDULER, "wait"), b"waiting")

    await eventually(lambda: follower.messages[-1].data == b"waiting")
    await subscription.close()


async def test_the_scheduler_follows_everything_under_pressure(guarded: World) -> None:
    """Enough data for flow control, in which the server waits for the client's answers."""
    count, data = 600, bytes(15_000)
    for number in range(count):
        subject = subjects.Event(
            cluster="default", node=f"n{number}", writer=SCHEDULER.writer, kind="step"
        )
        await guarded.scheduler.store(EVENTS, str(subject), data)
    follows = {
        subjects.Event: EVENTS,
        subjects.State: STATE,
        subjects.Command: COMMANDS,
        subjects.Check: COMMANDS,
    }
    for plane, stream in follows.items():
        pattern = subjects.cluster_pattern(plane, "default")
        held = await content(guarded.scheduler, stream, pattern, FromSequence())
        assert held, plane
        if plane is subjects.Event:
            assert sum(1 for _, each in held if each == data) == count


async def test_the_scheduler_writes_and_purges_slots(guarded: World) -> None:
    bus = guarded.scheduler
    written = await bus.store(COMMANDS, slot(BYSTANDER), b"one", expect=0)
    with pytest.raises(SequenceConflict):
        await bus.store(COMMANDS, slot(BYSTANDER), b"two", expect=written + 1)

    await bus.purge(COMMANDS, slot(B_DRIVER))
    await bus.purge(STATE, state(B_DRIVER))

    assert await bus.last(COMMANDS, slot(B_DRIVER)) is None
    assert await bus.last(STATE, state(B_DRIVER)) is None
    assert await bus.last(COMMANDS, slot(A_DRIVER)) is not None
    with pytest.raises(SubjectForbidden):
        await bus.purge(EVENTS, event(B_DRIVER))


async def test_every_scheduler_can_ensure_the_streams(guarded: World) -> None:
    other = await guarded.bus(ELSEWHERE)
    before = await guarded.kept()
    for stream in STREAMS:
        await other.ensure(stream)
    assert await guarded.kept() == before


async def test_a_lost_stream_is_recreated(guarded: World) -> None:
    """The server restarts without the stream; the connections stay the same."""
    await guarded.server.lose_stream(STATE.name)
    agent = await guarded.bus(B_DRIVER)

    async def ensured() -> bool:
        try:
            await guarded.scheduler.ensure(STATE)
        except BusUnavailable:
            return False
        return True

    await eventually(ensured)
    assert await guarded.scheduler.last(STATE, state(B_DRIVER)) is None
    assert await agent.store(STATE, state(B_DRIVER), b"facts again") == 1
    command = await agent.last(COMMANDS, slot(B_DRIVER))
    assert command is not None
    assert command.data == b"do this"
