"""What the demo shows at the end: plans and what happened, times of nodes, counts of promises."""

from demo.fleet import make_fleet
from demo.observed import Observed
from demo.promises import promises
from demo.report import node_times, report_lines
from libs.audit import AuditJournal, AuditResult
from libs.contracts.events import (
    Event,
    EventBody,
    GrantEvent,
    PlanEvent,
    PlannedTime,
    RolloutEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.waits import WaitCode
from libs.fleet.node import Doing, FollowedNode

POOL, TARGET, FIRST = "nvidiadriver-training", "a" * 32, "b" * 32


def event(at: float, body: EventBody, node: str = "") -> Event:
    return Event.of(body, id=str(at), at=at, writer="scheduler", message="m", node=node)


def grant(at: float, node: str, target: str = TARGET) -> Event:
    return event(at, GrantEvent(pool=POOL, target=target, epoch=1, nodes=(node,)))


def wait(at: float, node: str, code: WaitCode | None) -> Event:
    return event(at, WaitEvent(pool=POOL, code=code), node)


def end(at: float, node: str, state: str = "upgrade-done", target: str = TARGET) -> Event:
    before = "validation-required"
    body = StepEvent(pool=POOL, token=1, before=before, after=state, target=target)
    return event(at, body, node)


STORY = (
    grant(1.0, "node-1", FIRST),
    end(5.0, "node-1", target=FIRST),
    event(
        9.0,
        PlanEvent(
            pool=POOL,
            target=TARGET,
            plan="p",
            nodes=(PlannedTime(node="node-1", start=0.0, end=50.0),),
            makespan_p50=50.0,
        ),
    ),
    wait(9.5, "node-1", WaitCode.BUDGET),
    grant(10.0, "node-1"),
    wait(12.0, "node-1", WaitCode.JOBS),
    wait(37.0, "node-1", WaitCode.DRIVER_START),
    end(45.0, "node-1", "upgrade-failed"),
    wait(46.0, "node-1", WaitCode.HALTED),
    grant(60.0, "node-1"),
    wait(61.0, "node-1", WaitCode.DRIVER_START),
    wait(65.0, "node-1", None),
    end(70.0, "node-1"),
)


def test_the_time_of_a_node_is_that_of_its_attempts_with_what_it_waited_for() -> None:
    (found,) = node_times(STORY, {TARGET})
    assert (found.node, found.seconds, found.attempts) == ("node-1", 45.0, 2)
    assert found.seconds + found.between == 60.0  # as in a comparison, which counts both
    assert found.waits == {"jobs": 25.0, "driver-start": 12.0}


def test_the_report_sets_a_plan_beside_what_happened() -> None:
    undisturbed = (*STORY[:5], end(58.0, "node-1"))
    lines = list(report_lines(undisturbed, make_fleet(1), Observed(), {TARGET: "580.95.05"}))
    assert f"{POOL} to 580.95.05: plan and rollout" in lines
    assert "  was planned to take: 50 s (p50), not known (p95)" in lines
    assert "  took: 48 s" in lines
    assert "  error of the plan: it took 4% less than the planned 50 s" in lines


def test_what_disturbs_one_pool_is_not_told_of_another() -> None:
    other = GrantEvent(pool="nvidiadriver-serving", target=TARGET, epoch=1, nodes=("node-2",))
    undisturbed = (event(11.0, other), wait(12.0, "node-2", WaitCode.JOBS), end(40.0, "node-2"))
    lines = list(report_lines((*STORY, *undisturbed), make_fleet(2), Observed(), {}))
    told = [line for line in lines if line.startswith("  node-") and "waited for" in line]
    assert told == [
        "  node-1 waited for jobs for 25 s",
        "  node-1 waited for the end of a halt for 15 s",
    ]


def test_the_report_says_what_no_plan_knew_and_names_what_people_left() -> None:
    cordoned = FollowedNode(
        doing=Doing.CORDONED, name="node-1", pool="training", state="upgrade-done", cordoned=True
    )
    seen = Observed(nodes={"node-1": cordoned})
    lines = list(report_lines(STORY, make_fleet(1), seen, {TARGET: "580.95.05"}))
    assert f"{POOL} to 580.95.05" in lines
    assert "  took 1 min. What no plan could know:" in lines
    assert "  node-1 failed and was tried again" in lines
    assert "  node-1 waited for jobs for 25 s" in lines
    assert not any("error of the plan" in line for line in lines)
    told = (
        "  node-1         45 s, in 2 attempts, and 15 s between them   jobs 25 s, driver-start 12 s"
    )
    assert told in lines
    assert lines[-1] == "node-1 is still cordoned, as a person left it, and is upgrade-done."


def test_each_promise_says_how_often_it_was_put_to_the_test() -> None:
    def revision(number: int, manager: str, changed: bool) -> Revision:
        return Revision(
            revision=number,
            time=float(number),
            user="u",
            manager=manager,
            verb=Verb.PATCH,
            code=200,
            kind="Node",
            name="node-1",
            uid="u-1",
            changed={"metadata.labels.a": (None, "b")} if changed else {},
        )

    def entry(phase: EntryPhase, detail: str = "") -> Entry:
        return Entry(
            node="node-1",
            node_uid="u-1",
            boot_id="b",
            component="driver",
            epoch=1,
            token=1,
            op=1,
            command="swap",
            phase=phase,
            time=1.0,
            detail=detail,
        )

    phases = [entry(EntryPhase.STARTED), entry(EntryPhase.STEP, "unload")]
    phases.append(entry(EntryPhase.FINISHED))
    halt = RolloutEvent(pool=POOL, target=TARGET, before="Proving", after="Halted")
    journal = AuditJournal(
        revisions=(revision(1, "kubectl", True), revision(2, "kubectl", False)),
        entries=tuple(phases),
        events=(*STORY, event(50.0, halt)),
    )
    found = {each.name: each for each in promises(journal, AuditResult())}
    assert len(found) == 12
    counted = {name: each.counted for name, each in found.items()}
    assert counted["I1"] == "0 times a node was taken out of service, within the limits"
    assert counted["I2"] == "1 command obeyed by agents"
    assert counted["I4"] == "1 write of people to nodes left as they are"
    assert counted["I5"] == "the kernel was asked 1 time to unload a driver"
    assert counted["I8"] == "1 rollout, 1 halt"
    assert counted["I9"] == "5 waits, each with its reason"
    assert counted["I11"] == "1 result, none of them twice"
    assert [name for name, each in found.items() if each.verdict != "kept"] == ["I7", "I12"]
