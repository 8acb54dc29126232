"""I10: counted writes, per node and attempt."""

from typing import Any

import pytest

from libs.contracts.journal import Revision, Verb
from libs.contracts.node import MANAGER, MIG_STATE_LABEL
from libs.contracts.waits import WAITS_REASON
from tests.unit.audit.builders import JournalBuilder, cases, labelled, messages, violations_of

TOO_MANY = "n1: the scheduler wrote to it more than 8 times in attempt"
OTHERS_TOO_MANY = "n1: our other services wrote to it more than 6 times in attempt"
SERVICE = "by=sluice-discovery"


def i10_messages(builder: JournalBuilder, *, faults: bool = False) -> list[str]:
    return messages(builder.journal(), "I10", faults=faults)


@cases(
    "story texts",
    the_mark_counts_towards_its_attempt=("require; lease; churn 7", [f"{TOO_MANY} 1"]),
    eight_writes_are_allowed=("require; lease; churn 6", []),
    a_violation_is_reported_once=("require; lease; churn 20", [f"{TOO_MANY} 1"]),
    other_writes_before_a_lease_do_not_count=("churn 3; lease; churn 7", []),
    a_mark_counts_after_other_writes=(
        "require; rewrite driver=x; lease; churn 7",
        [f"{TOO_MANY} 1"],
    ),
    attempts_are_counted_separately=(
        "require; lease; churn 5; release; require; lease; churn 5; release",
        [],
    ),
    a_release_is_not_the_mark_of_the_next_attempt=("lease; release; lease; churn 7", []),
    eight_writes_without_a_lease_are_allowed=("churn 8", []),
    writes_without_a_lease_are_counted=("churn 9", [f"{TOO_MANY} 0"]),
    a_write_without_changes_does_not_count=("rewrite state=x; advance 2;" * 30, []),
    writes_of_others_do_not_count=("lease; churn 100 by=argo", []),
    six_writes_of_our_other_services_are_allowed=(f"lease; churn 6 {SERVICE}", []),
    writes_of_our_other_services_are_counted=(
        f"lease; churn 7 {SERVICE}",
        [f"{OTHERS_TOO_MANY} 1"],
    ),
    writes_of_our_other_services_before_an_attempt_do_not_count=(f"churn 20 {SERVICE}", []),
)
def test_writes_are_counted_per_attempt(story: str, texts: list[str]) -> None:
    builder = JournalBuilder("n1").play(story)
    assert i10_messages(builder) == texts
    assert i10_messages(builder, faults=True) == []


def test_violations_name_the_exceeding_write() -> None:
    builder = JournalBuilder("n1").play("lease; churn 7; !churn 1; churn 1")
    assert violations_of(builder.journal()) == [("I10", "n1", builder.planted[0])]


def test_nodes_are_counted_separately() -> None:
    builder = JournalBuilder("n1", "n2").play("lease; churn 7; lease n2; rewrite n2 driver=x")
    assert i10_messages(builder) == []


@pytest.mark.parametrize(("times", "problems"), [(4, 0), (5, 1), (9, 1)])
def test_conflicts_are_counted(times: int, problems: int) -> None:
    builder = JournalBuilder("n1").play("lease")
    for _ in range(times):
        builder.apply("n1", code=409)
        builder.apply("n9", code=409)
    builder.write("Node", "n1", labelled("a/b", "c"), manager="argo", code=409)
    assert i10_messages(builder) == ["n1: more than 4 conflicts in attempt 1"] * problems


@cases(
    "evictions problems",
    the_same_pod_twice=([("p1", 201, MANAGER), ("p1", 200, MANAGER)], 1),
    the_same_pod_three_times=([("p1", 299, MANAGER)] * 3, 1),
    refused=([("p1", 429, MANAGER), ("p1", 429, MANAGER), ("p1", 201, MANAGER)], 0),
    codes_that_grant_nothing=([("p1", 199, MANAGER), ("p1", 300, MANAGER)] * 2, 0),
    two_pods=([("p1", 201, MANAGER), ("p2", 201, MANAGER)], 0),
    by_another=([("p1", 201, MANAGER), ("p1", 201, "kubectl")], 0),
    of_an_unknown_pod=([("", 201, MANAGER)] * 2, 0),
)
def test_each_pod_is_evicted_at_most_once(
    evictions: list[tuple[str, int, str]], problems: int
) -> None:
    builder = JournalBuilder("n1")
    for name, code, manager in evictions:
        builder.revisions.append(
            Revision(
                revision=0, time=builder.time, user=manager, manager=manager, verb=Verb.EVICT,
                code=code, kind="Pod", namespace="gpu", name=name, uid=name and f"uid-{name}",
            )
        )  # fmt: skip
    assert i10_messages(builder) == ["pod gpu/p1 was evicted more than once"] * problems


@cases(
    "deletions problems",
    the_same_pod_twice=([("p1", 200, MANAGER), ("p1", 200, MANAGER)], 1),
    two_pods=([("p1", 200, MANAGER), ("p2", 200, MANAGER)], 0),
    a_pod_that_is_gone=([("p1", 200, MANAGER), ("p1", 404, MANAGER)], 0),
    by_another=([("p1", 200, MANAGER), ("p1", 200, "kubectl")], 0),
)
def test_a_pod_is_deleted_once(deletions: list[tuple[str, int, str]], problems: int) -> None:
    builder = JournalBuilder("n1")
    for name, code, manager in deletions:
        builder.write("Pod", name, lambda _: None, manager=manager, verb=Verb.DELETE, code=code)
        builder.edit_last(uid=f"uid-{name}", namespace="gpu")
    assert i10_messages(builder) == ["pod gpu/p1 was deleted more than once"] * problems


def repeated(
    builder: JournalBuilder, times: int, *, every: float = 0.02, **options: Any
) -> JournalBuilder:
    """Repeat a request that changes nothing."""
    request: dict[str, Any] = {
        "kind": "Pod", "name": "driver", "namespace": "gpu", "manager": MANAGER,
        "verb": Verb.DELETE, "code": 404, **options,
    }  # fmt: skip
    for _ in range(times):
        builder.advance(every)
        builder.write(change=lambda _: None, **request)
    return builder


LOOP = "more than 20 times in 10 s"


@cases(
    "times options texts",
    a_deletion=(1000, {}, [f"{MANAGER} sent delete of Pod gpu/driver {LOOP}"]),
    twenty_one=(21, {}, [f"{MANAGER} sent delete of Pod gpu/driver {LOOP}"]),
    twenty=(20, {}, []),
    one_a_second=(100, {"every": 1.0}, []),
    a_refused_eviction=(
        21,
        {"verb": Verb.EVICT, "code": 429},
        [f"{MANAGER} sent evict of Pod gpu/driver {LOOP}"],
    ),
    a_refused_rollout=(
        21,
        {"kind": "Rollout", "name": "p", "namespace": "", "verb": Verb.UPDATE, "code": 409},
        [f"{MANAGER} sent update of Rollout p {LOOP}"],
    ),
    a_daemon_set=(
        21,
        {"kind": "DaemonSet", "manager": "sluice-driver", "verb": Verb.APPLY, "code": 500},
        [f"sluice-driver sent apply of DaemonSet gpu/driver {LOOP}"],
    ),
    a_lease=(100, {"kind": "Lease", "verb": Verb.UPDATE}, []),
    another_manager=(100, {"manager": "kubectl"}, []),
)
def test_no_write_is_repeated_as_fast_as_it_is_answered(
    times: int, options: dict[str, Any], texts: list[str]
) -> None:
    builder = repeated(JournalBuilder("n1"), times, **options)
    assert i10_messages(builder) == texts
    assert i10_messages(builder, faults=True) == texts


def test_requests_before_and_after_a_step_of_the_clock_are_not_counted_together() -> None:
    builder = repeated(JournalBuilder("n1"), 15)
    builder.advance(-30)
    assert i10_messages(repeated(builder, 15)) == []
    assert len(i10_messages(repeated(builder, 6))) == 1


def test_changes_of_the_status_of_a_rollout_are_no_repeats() -> None:
    builder = JournalBuilder("n1")
    for nodes in range(100):
        builder.base(nodes)
    assert i10_messages(builder) == []


def record_event(builder: JournalBuilder, about: str = "n1", **options: Any) -> None:
    """Create or repeat a Kubernetes Event."""
    involved = {"kind": options.pop("about_kind", "Node"), "name": about}

    def change(event: dict[str, Any]) -> None:
        event["involvedObject"] = involved
        event["count"] = event.get("count", 0) + 1

    written: dict[str, Any] = {
        "kind": "Event", "manager": MANAGER, "verb": Verb.CREATE, "code": 201, **options,
    }  # fmt: skip
    builder.write(name=f"event-{len(builder.revisions)}", change=change, **written)


@cases(
    "options problems",
    of_ours=({}, 1),
    of_another=({"manager": "kubelet"}, 0),
    not_created=({"code": 200, "verb": Verb.PATCH}, 0),
    of_another_kind=({"kind": "Report"}, 0),
    about_another_kind=({"about_kind": "DaemonSet"}, 0),
    about_another_node=({"about": "n2"}, 0),
)
def test_each_state_has_at_most_one_kubernetes_event(
    options: dict[str, Any], problems: int
) -> None:
    builder = JournalBuilder("n1", "n2").play("require; require n2; lease")
    record_event(builder)
    record_event(builder)
    assert i10_messages(builder) == []
    record_event(builder, **options)
    assert i10_messages(builder) == ["n1 had 2 states, but has more Kubernetes Events"] * problems


def test_a_mig_state_is_a_state_too() -> None:
    builder = JournalBuilder("n1").play("require; lease")
    for value in ("pending", "success", None):
        builder.label("n1", MIG_STATE_LABEL, value, by=MANAGER)
    for _ in range(4):
        record_event(builder)
    assert i10_messages(builder) == []
    record_event(builder)
    assert i10_messages(builder) == ["n1 had 4 states, but has more Kubernetes Events"]


def record_wait(builder: JournalBuilder, message: str) -> None:
    """Create a Kubernetes Event about a wait."""

    def change(event: dict[str, Any]) -> None:
        event["involvedObject"] = {"kind": "Node", "name": "n1"}
        event["reason"], event["message"] = WAITS_REASON, message

    builder.write(
        kind="Event", name=f"event-{len(builder.revisions)}", change=change, manager=MANAGER,
        verb=Verb.CREATE, code=201,
    )  # fmt: skip


def test_a_wait_has_an_event_for_each_code_and_hour_beside_those_of_states() -> None:
    builder = JournalBuilder("n1").play("require; lease")
    record_event(builder)
    record_event(builder)
    record_wait(builder, "pdb: web/frontend refuses")
    record_wait(builder, "jobs: a/b runs")
    builder.play("advance 3600")
    record_wait(builder, "pdb: web/frontend refuses")
    assert i10_messages(builder) == []
    record_wait(builder, "pdb: web/backend refuses")
    told = "n1 has more than one Kubernetes Event within an hour about pdb"
    assert i10_messages(builder) == [told]


def test_an_event_after_a_step_of_the_clock_may_be_an_hour_later() -> None:
    builder = JournalBuilder("n1").play("require; lease")
    record_wait(builder, "pdb: web/frontend refuses")
    builder.play("advance 3600; ready; advance -600; ready")
    record_wait(builder, "pdb: web/frontend refuses")
    assert i10_messages(builder) == []
