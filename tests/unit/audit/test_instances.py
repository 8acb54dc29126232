"""I3: evidence of a driver that is not the one on the node."""

from typing import Any

from libs.audit import judge
from tests.unit.audit.builders import LABEL, JournalBuilder, cases, messages

UNDERWAY = "begin_upgrade; advance 60; prove;"
WITHOUT = "n1 returned to service without proof:"
POD = "pod pod-n1-new"


def i3_messages(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(max_unavailable=2), "I3")


@cases(
    "overrides problem",
    a_pod_that_never_was=(
        {"driver_pod_uid": "invented"},
        "its evidence names the driver pod invented, which never was",
    ),
    a_start_that_never_was=(
        {"driver_started": 1_000_020.0},
        f"the driver of its evidence never started at 1000020 in {POD}",
    ),
    no_start=({"driver_started": 0.0}, f"the driver of its evidence never started at 0 in {POD}"),
    another_kernel=(
        {"kernel": "6.9.0"},
        "its evidence is of kernel 6.9.0, but the node runs 6.8.0",
    ),
    a_start_after_the_validation=(
        {"driver_started": 1_000_063.0},
        "its evidence is of 1000060, before its driver started at 1000063",
    ),
    a_time_after_the_validation=(
        {"at": 1_000_063.0},
        "its evidence is of 1000063, after its validation 1.1 had ended",
    ),
    a_time_before_the_validation=(
        {"at": 1_000_050.0},
        "its evidence is of 1000050, before its validation 1.1 began",
    ),
)
def test_evidence_of_another_instance_is_a_violation(
    overrides: dict[str, Any], problem: str
) -> None:
    builder = JournalBuilder("n1").play(UNDERWAY)
    builder.finish("n1", **overrides)
    assert problem in i3_messages(builder)[0]


@cases(
    "story texts",
    a_pod_gone_for_34_s=(
        f"{UNDERWAY} save_evidence; delete Pod pod-n1-new; advance 34; finish saved=True",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 34 s before"],
    ),
    a_pod_that_terminates=(
        f"{UNDERWAY} save_evidence; driver_pod terminating=True; advance 13; finish saved=True",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 13 s before"],
    ),
    a_driver_that_is_not_ready=(
        f"{UNDERWAY} save_evidence; driver_pod ready=False; advance 13; finish saved=True",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 13 s before"],
    ),
    a_driver_that_crashed=(
        f"{UNDERWAY} save_evidence; driver_pod ago=None; advance 13; finish saved=True",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 13 s before"],
    ),
    a_driver_that_restarted=(
        f"{UNDERWAY} save_evidence; driver_pod ago=0; advance 13; finish saved=True",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 13 s before"],
    ),
    a_pod_of_another_node=(
        f"{UNDERWAY} save_evidence; driver_pod on=n2; finish saved=True",
        [f"{WITHOUT} the driver {POD} of its evidence is of node n2"],
    ),
    a_pod_of_another_driver=(
        f"{UNDERWAY} save_evidence; driver_pod label=other; finish saved=True",
        [f"{WITHOUT} the driver {POD} of its evidence has label 'other'"],
    ),
    a_validation_that_was_repeated=(
        (
            f"{UNDERWAY} save_evidence; advance 1; started validator validate op=2; advance 3;"
            "finish saved=True"
        ),
        [f"{WITHOUT} its evidence is of validation 1.1, but 1.2 had begun"],
    ),
    a_crash_just_before_the_return=(
        f"{UNDERWAY} save_evidence; driver_pod ago=None; advance 12; finish saved=True",
        [],
    ),
    a_crash_after_the_decision=(
        (
            f"{UNDERWAY} save_evidence; advance 1; driver_pod ago=None; advance 9;"
            "finish saved=True decided=10"
        ),
        [],
    ),
    a_crash_long_before_the_decision=(
        f"{UNDERWAY} save_evidence; driver_pod ago=None; advance 22; finish saved=True decided=9",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 22 s before"],
    ),
    a_write_that_was_too_long_on_the_way=(
        f"{UNDERWAY} save_evidence; driver_pod ago=None; advance 73; finish saved=True decided=73",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 73 s before"],
    ),
    a_record_without_a_time=(
        f"{UNDERWAY} save_evidence; driver_pod ago=None; advance 13; finish saved=True decided=$t",
        [f"{WITHOUT} the driver of its evidence in {POD} had ended 13 s before"],
    ),
    a_start_within_clock_skew=(f"{UNDERWAY} driver_pod ago=28; finish", []),
    a_pod_before_the_journal=(f"{UNDERWAY} driver_pod; begin; finish", []),
    a_pod_that_restarted_before=(f"{UNDERWAY} driver_pod ago=50; driver_pod ago=None; finish", []),
)
def test_the_driver_of_the_evidence_runs_until_the_return(story: str, texts: list[str]) -> None:
    builder = JournalBuilder("n1", "n2")
    # Without a time, a record has the time 0.
    assert i3_messages(builder.play(story, t=builder.time + 73)) == texts


def test_without_any_pod_the_pods_are_a_missing_source() -> None:
    builder = JournalBuilder("n1").play(f"{UNDERWAY} finish")
    builder.revisions = [item for item in builder.revisions if item.kind != "Pod"]
    result = judge(builder.journal())
    assert (result.violations, result.not_judged) == ((), {"I3": "Pods"})


def test_a_start_of_the_api_server_in_whole_seconds_is_the_same_start() -> None:
    builder = JournalBuilder("n1", time=1_000_000.75).play(UNDERWAY)
    builder.finish("n1")
    pods = [item for item in builder.revisions if item.kind == "Pod"]
    path = "status.containerStatuses[name=nvidia-driver-ctr].state.running.startedAt"
    before, shown = pods[0].changed[path]
    pods[0].changed[path] = before, shown.partition(".")[0] + "Z"
    assert i3_messages(builder) == []
    assert builder.label_of("n1") == LABEL
