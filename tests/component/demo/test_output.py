"""The printed lines: events, waits, memory and CPU."""

import os
from pathlib import Path

import pytest

from demo.costs import ProcessCost, cost_lines, process_cost, total_cost
from demo.fleet import make_fleet
from demo.observed import DriverExit
from demo.output import NAMED_WITHIN, WAIT_SHOWN_AFTER, EventFormatter, exit_line
from demo.run import is_rest, opening_lines, rest_text
from libs.contracts.events import (
    CommandEvent,
    Event,
    FactsEvent,
    RolloutEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.node import WHOLE_LOG
from libs.contracts.waits import WaitCode

TARGET = "ac52af9f7449505c2f61082ac456a08c"
LABEL = "27106d33257c983977bdb963b5a30ce5"
NODE = "node-1"


@pytest.fixture
def versions() -> dict[str, str]:
    """The known versions by digest."""
    return {}


@pytest.fixture
def formatter(versions: dict[str, str]) -> EventFormatter:
    return EventFormatter(lambda: versions, began=100.0)


def wait_event(code: WaitCode | None, detail: str, *, at: float, node: str = NODE) -> Event:
    body = WaitEvent(pool="p", code=code, detail=detail)
    return Event.of(body, id=str(at), at=at, writer="scheduler", message="waits", node=node)


def step_event(message: str, *, at: float = 101.0) -> Event:
    body = StepEvent(pool="p", token=1, before="", after="upgrade-required")
    return Event.of(body, id="s", at=at, writer="scheduler", message=message, node=NODE)


def test_a_step_is_printed_at_once_with_time_and_node(formatter: EventFormatter) -> None:
    (line,) = formatter.lines_for(step_event("upgrade begins", at=112.5))
    assert line.split() == ["12.5", "s", "scheduler", "node-1:", "upgrade", "begins"]


def test_a_wait_is_printed_once_after_it_has_lasted(formatter: EventFormatter) -> None:
    detail = f"waiting for the new driver pod ({LABEL}) to reach the gate"
    assert not list(formatter.lines_for(wait_event(WaitCode.GATE, detail, at=110.0)))
    assert not list(formatter.overdue_lines(110.0 + WAIT_SHOWN_AFTER - 0.1))
    (line,) = formatter.overdue_lines(110.0 + WAIT_SHOWN_AFTER)
    assert line.split()[:2] == ["12.0", "s"], "lines are in the order of their seconds"
    assert line.endswith("node-1: waiting for the new driver pod (27106d33) to reach the gate")
    assert not list(formatter.overdue_lines(200.0))


def test_a_short_wait_is_not_printed(formatter: EventFormatter) -> None:
    list(formatter.lines_for(wait_event(WaitCode.GATE, "the gate", at=110.0)))
    list(formatter.lines_for(wait_event(WaitCode.UNLOAD, "the unload", at=110.2)))
    (line,) = formatter.overdue_lines(120.0)
    assert line.endswith("node-1: the unload")
    list(formatter.lines_for(wait_event(WaitCode.JOBS, "jobs", at=121.0)))
    list(formatter.lines_for(wait_event(None, "", at=121.3)))
    assert not list(formatter.overdue_lines(130.0))


def test_command_and_facts_events_are_not_printed(formatter: EventFormatter) -> None:
    command = CommandEvent(epoch=1, token=1, op=1, command="idle", phase="started")
    for body in (command, FactsEvent(changed=("kernel",))):
        event = Event.of(body, id="c", at=101.0, writer="driver", message="m", node=NODE)
        assert not list(formatter.lines_for(event))


def test_digests_are_replaced_by_versions_or_shortened(
    formatter: EventFormatter, versions: dict[str, str]
) -> None:
    (line,) = formatter.lines_for(step_event(f"set the driver label to {LABEL}"))
    assert line.endswith(f"label to {LABEL[:8]}")
    versions[LABEL] = "580.95.05"
    (line,) = formatter.lines_for(step_event(f"set the driver label to {LABEL}"))
    assert line.endswith("label to 580.95.05")


def test_nodes_that_wait_for_the_same_are_in_one_line(formatter: EventFormatter) -> None:
    for number in range(6):
        event = wait_event(WaitCode.GATE, "the gate", at=110.0 + number / 4, node=f"n{number}")
        assert not list(formatter.lines_for(event))
    assert not list(formatter.lines_for(wait_event(WaitCode.JOBS, "jobs", at=111.0, node="n9")))
    (line,) = formatter.overdue_lines(112.0)
    assert line.endswith("n0, n1, n2 and 3 more: the gate")
    (line,) = formatter.overdue_lines(113.0)
    assert line.endswith("n9: jobs")


def test_a_target_is_named_when_its_version_is_known_and_never_guessed(
    formatter: EventFormatter, versions: dict[str, str]
) -> None:
    body = RolloutEvent(pool="p", target=TARGET, before="", after="Proving")
    message = f"p: the target is {TARGET}"
    event = Event.of(body, id="r", at=110.0, writer="scheduler", message=message)
    assert not list(formatter.lines_for(event))
    assert not list(formatter.overdue_lines(110.5))
    versions[TARGET] = "590.10"
    (line,) = formatter.overdue_lines(111.0)
    assert line.endswith("p: the target is 590.10")
    assert not list(formatter.overdue_lines(120.0))
    (line,) = formatter.lines_for(event)
    assert line.endswith("p: the target is 590.10")


def test_a_target_without_a_version_is_told_by_its_digits(formatter: EventFormatter) -> None:
    body = RolloutEvent(pool="p", target=TARGET, before="", after="Proving")
    event = Event.of(body, id="r", at=110.0, writer="scheduler", message=f"p: {TARGET}")
    assert not list(formatter.lines_for(event))
    (line,) = formatter.overdue_lines(110.0 + NAMED_WITHIN)
    assert line.endswith(f"p: {TARGET[:8]}")


def test_the_end_of_a_driver_is_told_with_its_exit_code_and_how_often() -> None:
    ended = DriverExit(node="n1", pod="d-1", label=LABEL, container_id="c", exit_code=1)
    versions = {LABEL: "580.95.05"}
    first = "n1: the container of driver 580.95.05 has ended with exit code 1"
    assert exit_line(ended, versions, number=1) == f"{first}; its last lines:"
    assert exit_line(ended, versions, number=2) == f"{first}, for the 2nd time; its last lines:"
    again = exit_line(ended, versions, number=2, is_new=False)
    assert again == f"{first}, for the 2nd time, with the same last lines"


def test_the_log_of_a_driver_which_its_end_tells_is_left_out_of_events(
    formatter: EventFormatter,
) -> None:
    log = f"and its log ends: Building / `nvidia`; giving up; {WHOLE_LOG}: `kubectl logs p -c d`"
    (line,) = formatter.lines_for(step_event(f"failed: driver-start (it exited with 1, {log}); x"))
    assert line.endswith("node-1: failed: driver-start (it exited with 1); x")


def test_memory_and_cpu_are_read_despite_an_odd_process_name(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps_rollup").write_text(
        "5581-7ffe ---p 00000000 00:00 0 [rollup]\nRss:  90000 kB\nPss:  51200 kB\n"
    )
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "7" / "stat").write_text(
        f"7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 {3 * ticks} {2 * ticks} 0 0 20 0 1 0 100\n"
    )
    assert process_cost(7, proc=tmp_path) == ProcessCost(50.0, 5.0)


def test_the_cost_of_a_machine_includes_its_children_but_not_those_that_ended(
    tmp_path: Path,
) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    for pid, children in ((7, "8 9 "), (8, "")):
        task = tmp_path / f"{pid}/task/{pid}"
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / f"{pid}/smaps_rollup").write_text(f"Pss: {pid * 1024} kB\n")
        times = f"{ticks} {2 * ticks} {3 * ticks} {4 * ticks}"
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a) S 1 7 7 0 -1 4 9 0 0 0 {times} 20 0\n")
    assert total_cost(7, proc=tmp_path) == ProcessCost(15.0, 20.0)


def test_the_cost_of_this_process_is_read_from_proc() -> None:
    assert process_cost(os.getpid()).memory_mib > 1


def test_the_table_ends_with_the_total() -> None:
    *_, last = cost_lines({"a": ProcessCost(10.0, 1.0), "b": ProcessCost(20.0, 2.0)}, seconds=30.0)
    assert last.startswith("  total ")
    assert last.endswith(" 30 MiB     3.0 s of CPU in 30 s: 0.10 of a core")


def test_the_cpu_at_rest_is_left_out_if_something_happened_meanwhile() -> None:
    before, meanwhile = step_event("done", at=99.0), step_event("a plan", at=101.0)
    assert is_rest((before,), since=100.0)
    assert not is_rest((before, meanwhile), since=100.0)
    assert rest_text(0.314) == "at rest after the upgrade: 0.31 of a core"
    assert "not measured" in rest_text(None)


@pytest.mark.parametrize("speed", [0.4, 2.0])
def test_another_speed_is_told_in_words_for_slower_and_faster(speed: float) -> None:
    *_, usual = opening_lines(make_fleet(12), speed=1.0, is_real=False)
    *_, other = opening_lines(make_fleet(12), speed=speed, is_real=False)
    assert other == f"{usual} The machines run at {speed:g} times their usual speed."
