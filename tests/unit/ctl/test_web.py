"""What the page shows, as data: kinds of nodes, moves, plans, stories, and what changed."""

from typing import Any

import msgspec
from msgspec.structs import replace

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.events import Event, StepEvent, WaitEvent
from libs.contracts.identities import Writer
from libs.contracts.node import NodeRecord
from libs.contracts.queries import (
    PlanAnswer,
    PlannedNode,
    PlanStop,
    PlanStopKind,
    WaitReason,
    WhyAnswer,
)
from libs.contracts.reports import Evidence, ValidationStep
from libs.contracts.rollout import InFlight, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.ctl.answers import NodeFact
from libs.ctl.cluster import Cluster
from libs.ctl.follow.kubernetes import is_shown, make_env
from libs.ctl.follow.objects import FollowedObject
from libs.ctl.node_answers import node_answer
from libs.ctl.options import Access
from libs.ctl.web import history, model
from libs.ctl.web.board import MOST_EVENTS, Board, Encoder
from libs.ctl.web.feed import PageFeed
from libs.ctl.web.history import Move, Planned
from libs.ctl.web.story import encode_story, story_of
from libs.fleet.node import Doing, FollowedNode
from libs.fleet.status import EventLine
from libs.kube import views
from libs.kube.client import Kube
from libs.kube.http import HttpTransport, StaticToken
from tests.builders.fleet import written

T0 = 1_800_000_000.0
OLD, NEW = "1" * 32, "2" * 32
VERSIONS = {OLD: "570.86.15", NEW: "580.95.05"}
POOL = "gpus"


def row(name: str = "n1", **changes: Any) -> model.Row:
    known: dict[str, Any] = {"state": "upgrade-done", "since": T0, **changes}
    return model.row_of(FollowedNode(name=name, pool=POOL, doing=Doing.DONE, **known))


def test_texts_of_nodes_lose_what_is_not_printable() -> None:
    hostile = row("n1\x1b[2J", cause="a\u202eb\nc", state="x\x00")
    assert "\x1b" not in hostile.name
    assert hostile.note == "earlier attempt: a\ufffdb\ufffdc"
    assert hostile.state == "x\ufffd"
    wait = WaitReason(code=WaitCode.HALTED, detail="it\x07", since=T0, who="a person\x1b")
    assert model.clean(wait).who == "a person\ufffd"
    unheard = replace(wait, code=WaitCode("new\x1b"))
    assert model.clean(unheard).code == WaitCode("new\ufffd")
    assert row(wait=wait).wait == model.clean(wait)
    event = EventLine(at=T0, writer="driver", node="n1\x07", kind="facts", message="\u2028")
    assert model.clean(event).node == "n1\ufffd"
    assert model.clean(event).message == "\ufffd"


def test_a_note_says_in_a_few_words_what_is_special_about_a_node() -> None:
    assert row().note == ""
    sick = {"degraded": 1, "failed": 2, "ok": 4, "unknown": 1}
    known: dict[str, Any] = {"state": "upgrade-failed", "cause": "it broke", "attempt": 2}
    assert row(unready=True, cordoned=True, health=sick, **known).note == (
        "Node not Ready; cordoned; 1 GPU degraded; 2 GPUs failed; attempt 2; it broke"
    )


def test_only_nodes_with_gpus_or_a_state_are_on_the_map() -> None:
    def shown(**labels: str) -> bool:
        return is_shown(FollowedObject(metadata=views.Metadata(name="n", labels=labels)))

    assert shown(**{"nvidia.com/gpu.present": "true"})
    assert shown(**{"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"})
    assert not shown(**{"nvidia.com/gpu.present": "false"})


def step(after: str, *, token: int = 1, target: str = NEW) -> StepEvent:
    return StepEvent(pool=POOL, token=token, before="", after=after, target=target)


def moved(*steps: tuple[str, float]) -> Move | None:
    move = None
    for after, at in steps:
        move = history.advance(move, step(after), at)
    return move


def test_a_move_lasts_from_its_first_step_to_its_outcome() -> None:
    assert moved(("upgrade-required", 1.0)) is None
    states = (("wait-for-jobs-required", 2.0), ("validation-required", 5.0))
    begun = moved(("upgrade-required", 1.0), *states)
    assert begun is not None
    assert (begun.start, begun.end, begun.steps) == (2.0, None, states)
    for state, outcome in (
        ("upgrade-done", "done"),
        ("upgrade-failed", "failed"),
        ("upgrade-required", "given up"),
    ):
        ended = history.advance(begun, step(state), 9.0)
        assert ended is not None
        assert (ended.end, ended.outcome) == (9.0, outcome)
        assert history.advance(ended, step("upgrade-done"), 20.0) == ended


def test_another_attempt_is_another_move() -> None:
    begun = moved(("validation-required", 2.0))
    again = history.advance(begun, step("wait-for-jobs-required", token=2), 30.0)
    assert again is not None
    assert (again.start, again.steps) == (30.0, (("wait-for-jobs-required", 30.0),))


def record(**changes: Any) -> NodeRecord:
    fields: dict[str, Any] = {"node_uid": "u1", "epoch": 1, "token": 1, "pool": POOL, "target": NEW}
    return NodeRecord(**{**fields, **changes})


def test_kubernetes_alone_shows_what_moves_and_when_it_ended() -> None:
    flight = InFlight(node="n1", token=1, target=NEW, since=T0)
    status = RolloutStatus(target=NEW, in_flight={"u1": flight})
    moving = history.move_from_kubernetes(
        status, "u1", record(state="validation-required", since=T0 + 9)
    )
    assert moving is not None
    assert (moving.start, moving.end) == (T0, None)
    assert moving.steps == (("validation-required", T0 + 9),)
    done = record(state="upgrade-done", since=T0 + 20)
    ended = history.move_from_kubernetes(RolloutStatus(target=NEW), "u1", done)
    assert ended is not None
    assert (ended.start, ended.end, ended.outcome) == (None, T0 + 20, "done")
    assert history.move_from_kubernetes(RolloutStatus(target=OLD), "u1", done) is None
    assert history.move_from_kubernetes(status, "u2", None) is None


def test_events_are_preferred_unless_kubernetes_knows_more() -> None:
    told = moved(("validation-required", 2.0))
    ended = Move(pool=POOL, target=NEW, start=None, token=1, end=9.0, outcome="done")
    assert told is not None
    assert history.best(told, None, target=NEW) == told
    completed = history.best(told, ended, target=NEW)
    assert completed is not None
    assert (completed.start, completed.end, completed.outcome) == (2.0, 9.0, "done")
    later = msgspec.structs.replace(ended, token=2)
    assert history.best(told, later, target=NEW) == later
    assert history.best(told, None, target=OLD) is None


def test_a_bar_has_the_version_and_the_plan() -> None:
    move, planned = moved(("validation-required", 2.0)), Planned(start=1.0, end=5.0, at=0.5)
    bar = history.bar_of("n1", POOL, move, planned, VERSIONS)
    assert bar is not None
    assert (bar.target, bar.planned) == ("580.95.05", (1.0, 5.0))
    late = msgspec.structs.replace(planned, at=3.0)
    after = history.bar_of("n1", POOL, move, late, VERSIONS)
    assert after is not None
    assert after.planned is None, "it had started when it was planned"
    assert history.bar_of("n1", POOL, None, None, VERSIONS) is None


def test_only_what_has_not_started_is_planned_anew() -> None:
    nodes = (
        PlannedNode(node="n1", start_p50=0.0, end_p50=60.0),
        PlannedNode(node="n2", start_p50=60.0, end_p50=120.0),
        PlannedNode(node="n3", start_p50=60.0),
    )
    plan = PlanAnswer(pool=POOL, target=NEW, nodes=nodes)
    assert history.planned_times(plan, at=T0, started=["n1"]) == {
        "n2": Planned(start=T0 + 60, end=T0 + 120, at=T0)
    }
    stopped = msgspec.structs.replace(plan, stops=(PlanStop(kind=PlanStopKind.PAUSED),))
    assert history.planned_times(stopped, at=T0, started=["n1"]) == {}


def event(number: int) -> EventLine:
    return EventLine(at=T0 + number, writer="scheduler", node="n1", kind="step", message="x")


def test_a_reader_gets_everything_once_and_then_what_changed() -> None:
    board = Board()
    board.put_node("n1", row("n1"))
    board.put_node("n2", row("n2"))
    board.add_event(event(1))
    first = board.change_since(0, at=T0, sources=())
    assert first.whole
    assert [each.name for each in first.nodes] == ["n1", "n2"]
    board.put_node("n1", row("n1"))
    assert board.revision == first.revision, "an equal row is no change"
    board.put_node("n2", row("n2", state="upgrade-failed"))
    board.put_node("n1", None)
    board.add_event(event(2))
    second = board.change_since(first.revision, at=T0, sources=())
    assert not second.whole
    assert [each.name for each in second.nodes] == ["n2"]
    assert (second.gone, second.events) == (("n1",), (event(2),))
    assert second.pools is None
    third = board.change_since(second.revision, at=T0, sources=())
    assert (third.nodes, third.gone, third.events) == ((), (), ())


def test_a_reader_of_another_process_gets_everything() -> None:
    board = Board()
    board.put_node("n1", row("n1"))
    assert board.change_since(board.revision + 5, at=T0, sources=()).whole


def test_removed_rows_are_forgotten_and_a_late_reader_starts_over() -> None:
    board = Board()
    board.put_node("kept", row("kept"))
    late = board.revision
    for number in range(1500):
        board.put_node(f"n{number}", row(f"n{number}"))
        board.put_node(f"n{number}", None)
    assert board.change_since(late, at=T0, sources=()).whole
    current = board.revision
    board.put_node("kept", row("kept", state="upgrade-failed"))
    assert not board.change_since(current, at=T0, sources=()).whole


def test_no_more_events_are_kept_than_are_shown() -> None:
    board = Board()
    for number in range(MOST_EVENTS + 7):
        board.add_event(event(number))
    assert board.change_since(0, at=T0, sources=()).events[0].at == T0 + 7


def test_readers_that_are_equally_far_share_the_bytes() -> None:
    board = Board()
    encoder = Encoder(board)
    board.put_node("n1", row("n1"))
    one = encoder.since(0, at=T0, sources=())
    assert encoder.since(0, at=T0 + 0.2, sources=()) is one
    assert encoder.since(0, at=T0 + 5.0, sources=()) is not one
    board.put_node("n1", row("n1", state="upgrade-failed"))
    assert b"upgrade-failed" in encoder.since(0, at=T0 + 5.0, sources=())
    assert b"\n" not in one


async def test_steps_and_waits_are_believed_of_the_scheduler_alone() -> None:
    board, env = Board(), make_env()
    transport = HttpTransport("http://localhost:1", credentials=StaticToken())
    kube = Kube(transport, manager="test", clock=env.clock)
    feed = PageFeed(Access(), Cluster(kube, url="http://localhost:1", namespace=""), board, env=env)
    metadata = views.Metadata(name="n1", uid="u1")
    feed.state.node_changed(None, metadata)
    wait = WaitEvent(pool=POOL, code=WaitCode.FAILED, detail="forged", since=T0)
    for writer, believed in ((Writer.DRIVER, False), (Writer.SCHEDULER, True)):
        for body in (wait, step("validation-required")):
            feed.event_received(
                Event.of(
                    body, id=writer, at=T0, writer=writer, message="m", node="n1", node_uid="u1"
                )
            )
        feed.compute()
        assert (board.nodes["n1"].wait is not None) is believed
    assert [each.writer for each in feed.happened("n1")] == [*["driver"] * 2, *["scheduler"] * 2]
    assert [event.writer for _, event in board.events][1:3] == ["driver", "scheduler"]
    feed.state.node_changed(metadata, views.Metadata(name="n1", uid="u2"))
    feed.compute()
    assert board.nodes["n1"].wait is None, "another Node of this name"


def test_a_change_calls_readers_until_they_leave() -> None:
    board, called = Board(), list[int]()
    leave = board.on_change(lambda: called.append(1))
    board.put_node("n1", row("n1"))
    leave()
    board.put_node("n2", row("n2"))
    assert called == [1]


def node(*, boot: str = "b1", evidence: Evidence | None = None) -> views.Node:
    held = record(state="upgrade-done", since=T0, evidence=evidence)
    metadata = views.Metadata(name="n1", uid="u1", annotations=written(held))
    info = views.NodeInfo(boot_id=boot)
    return views.Node(metadata=metadata, status=views.NodeStatus(node_info=info))


def story(node: views.Node, why: WhyAnswer, *events: NodeFact) -> dict[str, Any]:
    answer = node_answer(node, events, why=why, sources=())
    return msgspec.json.decode(encode_story(story_of(node, answer, (), now=T0, happened=())))


EVIDENCE = Evidence(
    epoch=1,
    token=1,
    op=1,
    passed=False,
    label="x",
    node_uid="u1",
    boot_id="b1",
    kernel="6.1",
    driver_version="580.95.05",
    at=T0,
    steps=(
        ValidationStep(name="driver", passed=True),
        ValidationStep(name="cuda", passed=False, message="Xid 79", diagnosis=Diagnosis.NOUVEAU),
    ),
)


def test_a_story_has_the_proof_and_named_diagnoses() -> None:
    told = story(node(evidence=EVIDENCE), WhyAnswer(node="n1", diagnoses=(Diagnosis.IOMMU,)))
    assert told["proof"]["of_this_boot"] is True
    assert told["proof"]["checks"][1]["text"].startswith("Xid 79: the open driver nouveau")
    assert told["diagnoses"][0]["is_note"] is True


def test_a_proof_of_an_earlier_boot_is_said_to_be_one() -> None:
    told = story(node(boot="b2", evidence=EVIDENCE), WhyAnswer(node="n1"))
    assert told["proof"]["of_this_boot"] is False


def test_a_story_loses_what_is_not_printable() -> None:
    told = story(node(), WhyAnswer(node="n1"), NodeFact(name="Reason\x1b", text="a\x00b"))
    (event,) = told["node"]["events"]
    assert (event["name"], event["text"]) == ("Reason\ufffd", "a\ufffdb")


def test_a_story_says_which_failure_and_which_wait_are_earlier_ones() -> None:
    held = record(state="upgrade-required", since=T0, cause="driver-start: it did not load")
    metadata = views.Metadata(name="n1", uid="u1", annotations=written(held))
    event = NodeFact(name="GPUDriverUpgradeWaits", text="jobs: waiting for jobs")
    told = story(views.Node(metadata=metadata), WhyAnswer(node="n1"), event)
    assert told["node"]["node"]["cause"] == "earlier attempt: driver-start: it did not load"
    assert told["note"] == told["node"]["node"]["cause"]
    assert told["node"]["events"][0]["is_over"] is True
