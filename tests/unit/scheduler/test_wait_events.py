"""Kubernetes Events about waits: of one node, that somebody can end, one per code and hour."""

from collections.abc import Mapping
from typing import Any

import pytest

from libs.contracts import subjects
from libs.contracts.events import Event, EventKind, WaitEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.waits import (
    ITSELF,
    RESOLVED_BY,
    WAITS_OF_POOLS,
    WAITS_REASON,
    WaitCode,
    is_for_people,
)
from libs.rollout.decision import Wait
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run
from services.scheduler.wait_events import (
    LASTS,
    QUIET,
    WINDOW,
    LastWait,
    WaitEvents,
    read_last_waits,
)

START = 1000.0
LATER = START + QUIET


class Recorder:
    """Keeps what is recorded."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def record(self, about: Any, **event: Any) -> None:
        self.events.append({"about": about.name, **event})


def wait(
    code: WaitCode, who: str = "", *, since: float = START, until: float | None = None
) -> Wait:
    return Wait(
        code=code,
        detail="web/frontend refuses",
        since=since,
        until=until,
        who=who or RESOLVED_BY[code],
    )


def tell_lasting(told: WaitEvents, current: Wait, at: float) -> bool:
    """Tell the wait of node n1 if it has lasted by now, as the leader does in each decision."""
    return any(told.tell_lasting(name, "u1", current, at) for name in told.lasting(at))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def leader(
    recorder: Recorder, earlier: Mapping[str, LastWait] | None, *, at: float = START
) -> WaitEvents:
    sink: Any = recorder
    return WaitEvents(sink, started_at=at, earlier=earlier)


def last_wait(code: WaitCode | None, **told: float) -> dict[str, LastWait]:
    times = {WaitCode(each): at for each, at in told.items()}
    return {"n1": LastWait("u1", code, times)}


@pytest.fixture
def told(recorder: Recorder) -> WaitEvents:
    return leader(recorder, {})


def test_an_event_names_the_code_the_cause_and_who_can_end_it(
    told: WaitEvents, recorder: Recorder
) -> None:
    told.began("n1", "u1", wait(WaitCode.PDB), LATER)
    (event,) = recorder.events
    assert event["about"] == "n1"
    assert event["reason"] == WAITS_REASON
    assert event["message"] == (
        "pdb: web/frontend refuses. Can be ended by: the owner of the disruption budget"
    )


def test_a_code_is_told_once_an_hour_for_each_node(told: WaitEvents, recorder: Recorder) -> None:
    times = (LATER, LATER + 60, LATER + WINDOW - 1, LATER + WINDOW)
    for at in times:
        told.began("n1", "u1", wait(WaitCode.PDB), at)
    assert len(recorder.events) == 2
    told.began("n1", "u1", wait(WaitCode.JOBS), LATER)
    told.began("n2", "u2", wait(WaitCode.PDB), LATER)
    assert len(recorder.events) == 4


def test_a_wait_that_begins_early_in_a_term_is_told(recorder: Recorder) -> None:
    for earlier in ({}, last_wait(None), last_wait(WaitCode.JOBS)):
        leader(recorder, earlier).began("n1", "u1", wait(WaitCode.PDB), START + 1)
    assert len(recorder.events) == 3
    other_node = {"n1": LastWait("u9", WaitCode.PDB, {WaitCode.PDB: START})}
    leader(recorder, other_node).began("n1", "u1", wait(WaitCode.PDB), START + 1)
    assert len(recorder.events) == 4, "the Node was deleted and created again"


def test_a_new_leader_does_not_repeat_what_it_finds(recorder: Recorder) -> None:
    told_long_ago = leader(recorder, last_wait(WaitCode.PDB))
    told_long_ago.began("n1", "u1", wait(WaitCode.PDB), START + 5)
    assert recorder.events == []
    told_long_ago.began("n1", "u1", wait(WaitCode.PDB), LATER)
    assert len(recorder.events) == 1, "it ended, and began again"


def test_leaders_together_tell_a_code_once_an_hour(recorder: Recorder) -> None:
    first = leader(recorder, {})
    first.began("n1", "u1", wait(WaitCode.PDB), START)
    first.began("n1", "u1", wait(WaitCode.JOBS), START + 60)
    known = first.told("n1", "u1", START + 60)
    assert known == {"pdb": START, "jobs": START + 60}
    second = leader(recorder, last_wait(None, **known), at=START + 600)
    for at in (START + 610, START + 1800, START + WINDOW - 1):
        second.began("n1", "u1", wait(WaitCode.PDB), at)
    assert len(recorder.events) == 2
    assert second.told("n1", "u1", START + WINDOW) == {"jobs": START + 60}
    second.began("n1", "u1", wait(WaitCode.PDB), START + WINDOW)
    assert len(recorder.events) == 3


def test_without_the_bus_a_new_leader_takes_what_it_finds_for_told(recorder: Recorder) -> None:
    told = leader(recorder, None)
    told.began("n1", "u1", wait(WaitCode.PDB), START)
    told.began("n1", "u1", wait(WaitCode.PDB), LATER + 60)
    assert recorder.events == []
    told.forget("n1")
    told.began("n1", "u3", wait(WaitCode.PDB), LATER + 60)
    assert len(recorder.events) == 1


async def last_waits(sim: Sim, *waits: WaitEvent) -> Mapping[str, LastWait] | None:
    """Return what a new leader reads after another reported these waits of a node."""
    bus = LocalServer(env=sim.env("bus")).connect(Identity(writer=Writer.SCHEDULER))
    await bus.ensure(subjects.EVENTS)
    subject = subjects.Event(
        cluster="default", node="n1", writer=Writer.SCHEDULER, kind=EventKind.WAIT
    )
    for number, body in enumerate(waits):
        event = Event.of(
            body, id=str(number), at=START, writer="scheduler", message="m", node="n1",
            node_uid="u1",
        )  # fmt: skip
        await bus.store(subjects.EVENTS, str(subject), encode(event))
    return await read_last_waits(bus)


def test_a_wait_that_ended_by_itself_is_told_by_a_new_leader_if_somebody_has_to_end_it(
    recorder: Recorder,
) -> None:
    for who, events in ((ITSELF, 1), ("an administrator", 0)):
        recorder.events.clear()
        before = WaitEvent(pool="p", code=WaitCode.PREFLIGHT, who=who)
        earlier = run(lambda sim, before=before: last_waits(sim, before), seed=1)
        leader(recorder, earlier).began("n1", "u1", wait(WaitCode.PREFLIGHT), START + 5)
        assert len(recorder.events) == events


def test_a_wait_that_usually_ends_by_itself_is_told_once_it_has_lasted(
    told: WaitEvents, recorder: Recorder
) -> None:
    waits = wait(WaitCode.GATE)
    told.began("n1", "u1", waits, START)
    assert not tell_lasting(told, waits, START + LASTS - 1)
    assert recorder.events == []
    assert tell_lasting(told, waits, START + LASTS)
    assert not tell_lasting(told, waits, START + 9 * LASTS)
    (event,) = recorder.events
    assert event["type"] == "Warning"
    assert event["message"] == (
        "gate: web/frontend refuses, for 5 min. Can be ended by: an administrator of the driver"
        " agent, of the driver image or of NATS"
    )


def test_a_wait_that_ends_in_time_is_never_told(told: WaitEvents, recorder: Recorder) -> None:
    told.began("n1", "u1", wait(WaitCode.OLD_DRIVER), START)
    told.began("n1", "u1", wait(WaitCode.GATE, since=START + 30), START + 30)
    told.ended("n1")
    assert told.lasting(START + WINDOW) == []
    assert recorder.events == []


def test_one_that_somebody_has_to_end_is_told_at_once_although_others_of_its_code_are_not(
    told: WaitEvents, recorder: Recorder
) -> None:
    told.began("n1", "u1", wait(WaitCode.GATE), START)
    told.began("n1", "u1", wait(WaitCode.GATE, "an administrator"), START + 5)
    assert [event["type"] for event in recorder.events] == ["Warning"]
    assert told.lasting(START + WINDOW) == []


def test_pods_that_leave_slowly_are_normal_while_the_policy_gives_them_time(
    recorder: Recorder,
) -> None:
    for until, kind, at in ((START + 300, "Normal", 150), (None, "Warning", LASTS)):
        recorder.events.clear()
        told, waits = leader(recorder, {}), wait(WaitCode.EVICTION, until=until)
        told.began("n1", "u1", waits, START)
        assert not tell_lasting(told, waits, START + at - 1), "before half of the limit"
        assert tell_lasting(told, waits, START + at)
        assert [event["type"] for event in recorder.events] == [kind]


def test_a_wait_that_needs_nobody_is_never_told_unless_that_changes(
    told: WaitEvents, recorder: Recorder
) -> None:
    before = wait(WaitCode.EVICTION, ITSELF)
    told.began("n1", "u1", before, START)
    assert not tell_lasting(told, before, START + LASTS)
    assert tell_lasting(told, wait(WaitCode.EVICTION), START + 2 * LASTS)
    assert len(recorder.events) == 1


def test_leaders_tell_a_wait_that_lasts_once(recorder: Recorder) -> None:
    told_at = START + LASTS
    for told, events in (({}, 1), ({"gate": told_at}, 0), ({"gate": START - 60}, 0)):
        recorder.events.clear()
        before = WaitEvent(
            pool="p", code=WaitCode.GATE, since=START, who=RESOLVED_BY[WaitCode.GATE], told=told
        )
        earlier = run(lambda sim, before=before: last_waits(sim, before), seed=1)
        second, found = leader(recorder, earlier, at=told_at), wait(WaitCode.GATE, since=told_at)
        second.began("n1", "u1", found, told_at + 1)
        tell_lasting(second, found, told_at + LASTS)
        assert len(recorder.events) == events


def test_waits_of_pools_and_those_that_end_by_themselves_are_not_told() -> None:
    told = {code for code, who in RESOLVED_BY.items() if is_for_people(code, who)}
    assert not told & WAITS_OF_POOLS
    assert told.isdisjoint({WaitCode.BACK_OFF, WaitCode.VALIDATION, WaitCode.QUIESCE})
    assert {WaitCode.PDB, WaitCode.JOBS, WaitCode.FAILED, WaitCode.PREFLIGHT} <= told
    assert told.isdisjoint({WaitCode.GATE, WaitCode.OLD_DRIVER, WaitCode.EVICTION})
    assert is_for_people(WaitCode.DRIVER_START, "the administrator of the machine")
