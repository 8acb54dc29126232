"""I10: what is counted, per node and attempt."""

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


def i10_violations(builder: JournalBuilder, *, faults: bool = False) -> list[str]:
    return messages(builder.journal(), "I10", faults=faults)


def churn(builder: JournalBuilder, times: int, *, by: str = MANAGER) -> None:
    """Write a field of our own a number of times."""
    for number in range(times):
        change: Change = labelled("sluice.dev/churn", str(number))
        verb = Verb.APPLY if by == MANAGER else Verb.PATCH
        builder.write("Node", "n1", change, manager=by, verb=verb)


@pytest.mark.parametrize(("more", "problems"), [(6, 0), (7, 1), (20, 1)])
def test_the_mark_counts_towards_the_writes_of_its_attempt(more: int, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.mark_required("n1")
    builder.take_lease("n1")
    churn(builder, more)
    assert len(i10_violations(builder)) == problems
    if problems:
        assert i10_violations(builder) == [
            "n1: the scheduler wrote to it more than 8 times in attempt 1"
        ]
        assert i10_violations(builder, faults=True) == []


def test_other_writes_before_a_lease_do_not_count_towards_the_attempt() -> None:
    builder = JournalBuilder("n1")
    churn(builder, 3)
    builder.take_lease("n1")
    churn(builder, 7)
    assert i10_violations(builder) == []


def test_attempts_and_nodes_are_counted_separately() -> None:
    builder = JournalBuilder("n1", "n2")
    for name in ("n1", "n2", "n1"):
        builder.mark_required(name)
        builder.take_lease(name)
        if name == "n1":
            churn(builder, 5)
        builder.release_unchanged(name)
    assert i10_violations(builder) == []


@pytest.mark.parametrize(("times", "problems"), [(8, 0), (9, 1)])
def test_writes_without_a_lease_are_counted(times: int, problems: int) -> None:
    builder = JournalBuilder("n1")
    churn(builder, times)
    assert len(i10_violations(builder)) == problems


def test_a_write_without_changes_does_not_count() -> None:
    builder = JournalBuilder("n1")
    for _ in range(30):
        builder.apply("n1", state("upgrade-required"))
    assert i10_violations(builder) == []


def test_writes_of_others_do_not_count() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    churn(builder, 100, by="argo")
    assert i10_violations(builder) == []


@pytest.mark.parametrize(("times", "problems"), [(6, 0), (7, 1)])
def test_writes_of_our_other_services_are_counted(times: int, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    churn(builder, times, by="sluice-discovery")
    assert len(i10_violations(builder)) == problems


@pytest.mark.parametrize(("times", "problems"), [(4, 0), (5, 1), (9, 1)])
def test_conflicts_are_counted(times: int, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    for _ in range(times):
        builder.apply("n1", code=409)
    builder.write("Node", "n1", labelled("a/b", "c"), manager="argo", code=409)
    assert i10_violations(builder) == ["n1: more than 4 conflicts in attempt 1"] * problems


def evict(builder: JournalBuilder, name: str, code: int = 201, by: str = MANAGER) -> None:
    builder.revisions.append(
        Revision(
            revision=0, time=builder.time, user=by, manager=by, verb=Verb.EVICT, code=code,
            kind="Pod", namespace="gpu", name=name, uid=f"uid-{name}",
        )
    )  # fmt: skip


def test_each_pod_is_evicted_at_most_once() -> None:
    builder = JournalBuilder("n1")
    for code in (429, 429, 201):
        evict(builder, "p1", code)
    evict(builder, "p2")
    evict(builder, "p1", by="kubectl")
    assert i10_violations(builder) == []
    for _ in range(2):
        evict(builder, "unknown")
        builder.revisions[-1] = msgspec.structs.replace(builder.revisions[-1], uid="")
    assert i10_violations(builder) == []
    evict(builder, "p1")
    evict(builder, "p1")
    assert i10_violations(builder) == ["pod gpu/p1 was evicted more than once"]


def say(
    builder: JournalBuilder, about: str, *, kind: str = "Node", verb: Verb = Verb.CREATE
) -> None:
    def change(event: dict[str, Any]) -> None:
        event["involvedObject"] = {"kind": kind, "name": about}
        event["count"] = event.get("count", 0) + 1

    known = sum(key[0] == "Event" for key in builder.objects)
    name = f"event-{known + (verb == Verb.CREATE)}"
    code = 201 if verb == Verb.CREATE else 200
    builder.write("Event", name, change, manager=MANAGER, verb=verb, code=code, namespace="default")


def test_each_state_has_at_most_one_kubernetes_event() -> None:
    builder = JournalBuilder("n1", "n2")
    builder.mark_required("n1")
    builder.mark_required("n2")
    say(builder, "n1")
    say(builder, "n1", verb=Verb.PATCH)
    say(builder, "n2")
    say(builder, "driver", kind="DaemonSet")
    builder.take_lease("n1")
    say(builder, "n1")
    assert i10_violations(builder) == []
    say(builder, "n1")
    assert i10_violations(builder) == ["n1 had 2 states, but has more Kubernetes Events"]


def test_violations_name_the_exceeding_write() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    churn(builder, 9)
    ninth = builder.revisions[-2]
    assert violations_of(builder.journal()) == [("I10", "n1", ninth.revision)]
    early = msgspec.structs.replace(builder.journal(), revisions=tuple(builder.revisions[:-2]))
    assert violations_of(early) == []


def test_a_release_is_not_the_mark_of_the_next_attempt() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.release_unchanged("n1")
    builder.take_lease("n1")
    churn(builder, 7)
    assert i10_violations(builder) == []


def test_a_mark_counts_towards_its_attempt_after_other_writes() -> None:
    builder = JournalBuilder("n1")
    builder.mark_required("n1")
    builder.apply("n1", labelled("a/b", "c"))
    builder.take_lease("n1")
    churn(builder, 7)
    assert i10_violations(builder) == [
        "n1: the scheduler wrote to it more than 8 times in attempt 1"
    ]


def test_writes_of_our_other_services_before_any_attempt_do_not_count() -> None:
    builder = JournalBuilder("n1")
    churn(builder, 20, by="sluice-discovery")
    assert i10_violations(builder) == []


def test_conflicts_on_unknown_nodes_do_not_count() -> None:
    builder = JournalBuilder()
    for _ in range(9):
        builder.apply("n9", code=409)
    assert i10_violations(builder) == []


@pytest.mark.parametrize(("code", "problems"), [(199, 0), (200, 1), (299, 1), (300, 0)])
def test_status_codes_that_grant_an_eviction(code: int, problems: int) -> None:
    builder = JournalBuilder("n1")
    evict(builder, "p1", code)
    evict(builder, "p1", code)
    assert len(i10_violations(builder)) == problems


@pytest.mark.parametrize(
    ("kind", "code", "by", "problems"),
    [
        ("Event", 201, MANAGER, 1),
        ("Event", 201, "kubelet", 0),
        ("Event", 200, MANAGER, 0),
        ("Report", 201, MANAGER, 0),
    ],
)
def test_only_kubernetes_events_created_by_us_count(
    kind: str, code: int, by: str, problems: int
) -> None:
    builder = JournalBuilder("n1")

    def change(event: dict[str, Any]) -> None:
        event["involvedObject"] = {"kind": "Node", "name": "n1"}

    builder.write(kind, "one", change, manager=by, verb=Verb.CREATE, code=code)
    assert len(i10_violations(builder)) == problems
