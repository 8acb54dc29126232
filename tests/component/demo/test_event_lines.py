"""Lines for newcomers: what is told at once, what only if it lasts, and by which names."""

from demo.event_lines import WAIT_SHOWN_AFTER, EventFormatter, VersionNames
from libs.contracts.events import (
    CommandEvent,
    Event,
    FactsEvent,
    RolloutEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.waits import WaitCode

TARGET = "ac52af9f7449505c2f61082ac456a08c"
LABEL = "27106d33257c983977bdb963b5a30ce5"
NODE = "node-1"


def teller() -> EventFormatter:
    return EventFormatter(VersionNames(), began=100.0)


def waits(code: WaitCode | None, detail: str, *, at: float) -> Event:
    words = f"{NODE} waits: {detail}" if code else f"{NODE} waits no more"
    return Event.of(
        WaitEvent(pool="p", code=code, detail=detail),
        id=str(at),
        at=at,
        writer="scheduler",
        message=words,
        node=NODE,
    )


def steps(message: str, *, at: float = 101.0) -> Event:
    body = StepEvent(pool="p", token=1, before="", after="upgrade-required")
    return Event.of(body, id="s", at=at, writer="scheduler", message=message, node=NODE)


def test_a_step_is_told_at_once_with_its_node_and_its_second() -> None:
    (line,) = teller().lines_for(steps("upgrade begins", at=112.5))
    assert line.split() == ["12.5", "s", "scheduler", "node-1:", "upgrade", "begins"]


def test_a_wait_is_told_only_when_it_has_lasted_and_only_once() -> None:
    there = teller()
    assert not list(there.lines_for(waits(WaitCode.GATE, "the gate", at=110.0)))
    assert not list(there.overdue_lines(110.0 + WAIT_SHOWN_AFTER - 0.1))
    (line,) = there.overdue_lines(110.0 + WAIT_SHOWN_AFTER)
    assert line.split()[:2] == ["11.0", "s"], "lines are in the order of their seconds"
    assert line.endswith("node-1: the gate")
    assert not list(there.overdue_lines(200.0))


def test_a_wait_that_is_over_or_followed_by_another_is_not_told() -> None:
    there = teller()
    list(there.lines_for(waits(WaitCode.GATE, "the gate", at=110.0)))
    list(there.lines_for(waits(WaitCode.UNLOAD, "the unload", at=110.2)))
    (line,) = there.overdue_lines(120.0)
    assert line.endswith("node-1: the unload")
    list(there.lines_for(waits(WaitCode.JOBS, "jobs", at=121.0)))
    list(there.lines_for(waits(None, "", at=121.3)))
    assert not list(there.overdue_lines(130.0))


def test_what_agents_note_by_the_dozen_is_left_to_the_bus() -> None:
    taken = CommandEvent(epoch=1, token=1, op=1, command="idle", phase="started")
    for body in (taken, FactsEvent(changed=("kernel",))):
        event = Event.of(body, id="c", at=101.0, writer="driver", message="m", node=NODE)
        assert not list(teller().lines_for(event))


def test_digests_are_told_by_their_versions_and_shortened_while_they_are_not_known() -> None:
    names = VersionNames()
    there = EventFormatter(names, began=100.0)
    (line,) = there.lines_for(steps(f"its driver label becomes {LABEL}"))
    assert line.endswith(f"becomes {LABEL[:8]}")
    names.learn(LABEL, "580.95.05")
    (line,) = there.lines_for(steps(f"its driver label becomes {LABEL}"))
    assert line.endswith("becomes 580.95.05")


def test_a_new_target_is_of_the_version_that_people_want() -> None:
    there = teller()
    there.wanted = "580.95.05"
    body = RolloutEvent(pool="p", target=TARGET, before="", after="Proving")
    said = f"p: the target is {TARGET}"
    event = Event.of(body, id="r", at=101.0, writer="scheduler", message=said)
    (line,) = there.lines_for(event)
    assert line.endswith("p: the target is 580.95.05")
    there.wanted = "590.10"
    (line,) = there.lines_for(event)
    assert line.endswith("580.95.05"), "what a target is of does not change"
