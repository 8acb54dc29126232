"""I10: what is counted, against whom, and where counting begins anew."""

from typing import Any

import msgspec
import pytest

from libs.contracts.journal import Revision, Verb
from libs.contracts.node import MANAGER
from tests.unit.audit.builders import (
    Change,
    JournalBuilder,
    labelled,
    messages,
    state,
    violations_of,
)


def of_i10(story: JournalBuilder, *, faults: bool = False) -> list[str]:
    return messages(story.journal(), "I10", faults=faults)


def churn(story: JournalBuilder, times: int, *, by: str = MANAGER) -> None:
    """So many writes of a field that is nobody else's."""
    for number in range(times):
        change: Change = labelled("sluice.dev/churn", str(number))
        verb = Verb.APPLY if by == MANAGER else Verb.PATCH
        story.write("Node", "n1", change, manager=by, verb=verb)


@pytest.mark.parametrize(("more", "problems"), [(6, 0), (7, 1), (20, 1)])
def test_writes_of_an_attempt_the_mark_among_them(more: int, problems: int) -> None:
    story = JournalBuilder("n1")
    story.mark_required("n1")
    story.take_lease("n1")
    churn(story, more)
    assert len(of_i10(story)) == problems
    if problems:
        assert of_i10(story) == ["n1: the scheduler wrote to it more than 8 times in attempt 1"]
        assert of_i10(story, faults=True) == []


def test_of_the_writes_before_a_lease_only_the_mark_counts_with_it() -> None:
    story = JournalBuilder("n1")
    churn(story, 3)
    story.take_lease("n1")
    churn(story, 7)
    assert of_i10(story) == []


def test_every_attempt_and_every_node_is_counted_for_itself() -> None:
    story = JournalBuilder("n1", "n2")
    for name in ("n1", "n2", "n1"):
        story.mark_required(name)
        story.take_lease(name)
        if name == "n1":
            churn(story, 5)
        story.release_unchanged(name)
    assert of_i10(story) == []


@pytest.mark.parametrize(("times", "problems"), [(8, 0), (9, 1)])
def test_writes_outside_a_lease(times: int, problems: int) -> None:
    story = JournalBuilder("n1")
    churn(story, times)
    assert len(of_i10(story)) == problems


def test_a_write_that_changed_nothing_is_none() -> None:
    story = JournalBuilder("n1")
    for _ in range(30):
        story.apply("n1", state("upgrade-required"))
    assert of_i10(story) == []


def test_writes_of_others_are_theirs() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    churn(story, 100, by="argo")
    assert of_i10(story) == []


@pytest.mark.parametrize(("times", "problems"), [(6, 0), (7, 1)])
def test_writes_of_our_other_services(times: int, problems: int) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    churn(story, times, by="sluice-discovery")
    assert len(of_i10(story)) == problems


@pytest.mark.parametrize(("times", "problems"), [(4, 0), (5, 1), (9, 1)])
def test_conflicts(times: int, problems: int) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    for _ in range(times):
        story.apply("n1", code=409)
    story.write("Node", "n1", labelled("a/b", "c"), manager="argo", code=409)
    assert of_i10(story) == ["n1: more than 4 conflicts in attempt 1"] * problems


def evict(story: JournalBuilder, name: str, code: int = 201, by: str = MANAGER) -> None:
    story.revisions.append(
        Revision(
            revision=0, time=story.time, user=by, manager=by, verb=Verb.EVICT, code=code,
            kind="Pod", namespace="gpu", name=name, uid=f"uid-{name}",
        )
    )  # fmt: skip


def test_one_granted_eviction_for_each_pod() -> None:
    story = JournalBuilder("n1")
    for code in (429, 429, 201):
        evict(story, "p1", code)
    evict(story, "p2")
    evict(story, "p1", by="kubectl")
    assert of_i10(story) == []
    for _ in range(2):
        evict(story, "unknown")
        story.revisions[-1] = msgspec.structs.replace(story.revisions[-1], uid="")
    assert of_i10(story) == []
    evict(story, "p1")
    evict(story, "p1")
    assert of_i10(story) == ["pod gpu/p1 was evicted more than once"]


def say(story: JournalBuilder, about: str, *, kind: str = "Node", verb: Verb = Verb.CREATE) -> None:
    def change(event: dict[str, Any]) -> None:
        event["involvedObject"] = {"kind": kind, "name": about}
        event["count"] = event.get("count", 0) + 1

    known = sum(key[0] == "Event" for key in story.objects)
    name = f"event-{known + (verb == Verb.CREATE)}"
    code = 201 if verb == Verb.CREATE else 200
    story.write("Event", name, change, manager=MANAGER, verb=verb, code=code, namespace="default")


def test_one_event_for_each_state_that_is_shown() -> None:
    story = JournalBuilder("n1", "n2")
    story.mark_required("n1")
    story.mark_required("n2")
    say(story, "n1")
    say(story, "n1", verb=Verb.PATCH)
    say(story, "n2")
    say(story, "driver", kind="DaemonSet")
    story.take_lease("n1")
    say(story, "n1")
    assert of_i10(story) == []
    say(story, "n1")
    assert of_i10(story) == ["n1 had 2 states, but has more Kubernetes Events"]


def test_what_is_found_is_found_where_it_happens() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    churn(story, 9)
    ninth = story.revisions[-2]
    assert violations_of(story.journal()) == [("I10", "n1", ninth.revision)]
    early = msgspec.structs.replace(story.journal(), revisions=tuple(story.revisions[:-2]))
    assert violations_of(early) == []


def test_a_release_is_no_mark_of_the_next_attempt() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.release_unchanged("n1")
    story.take_lease("n1")
    churn(story, 7)
    assert of_i10(story) == []


def test_a_mark_counts_with_its_attempt_whatever_is_written_between() -> None:
    story = JournalBuilder("n1")
    story.mark_required("n1")
    story.apply("n1", labelled("a/b", "c"))
    story.take_lease("n1")
    churn(story, 7)
    assert of_i10(story) == ["n1: the scheduler wrote to it more than 8 times in attempt 1"]


def test_what_our_other_services_write_before_any_attempt_is_not_counted() -> None:
    story = JournalBuilder("n1")
    churn(story, 20, by="sluice-discovery")
    assert of_i10(story) == []


def test_conflicts_on_a_node_of_which_nothing_is_known_are_nobodys() -> None:
    story = JournalBuilder()
    for _ in range(9):
        story.apply("n9", code=409)
    assert of_i10(story) == []


@pytest.mark.parametrize(("code", "problems"), [(199, 0), (200, 1), (299, 1), (300, 0)])
def test_which_answers_grant_an_eviction(code: int, problems: int) -> None:
    story = JournalBuilder("n1")
    evict(story, "p1", code)
    evict(story, "p1", code)
    assert len(of_i10(story)) == problems


@pytest.mark.parametrize(
    ("kind", "code", "by", "problems"),
    [
        ("Event", 201, MANAGER, 1),
        ("Event", 201, "kubelet", 0),
        ("Event", 200, MANAGER, 0),
        ("Report", 201, MANAGER, 0),
    ],
)
def test_only_events_that_we_make_count(kind: str, code: int, by: str, problems: int) -> None:
    story = JournalBuilder("n1")

    def change(event: dict[str, Any]) -> None:
        event["involvedObject"] = {"kind": "Node", "name": "n1"}

    story.write(kind, "one", change, manager=by, verb=Verb.CREATE, code=code)
    assert len(of_i10(story)) == problems
