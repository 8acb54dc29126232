"""I2: one lease at a time, no change without one, and agents that start ops in order under it."""

import pytest

from libs.contracts.node import LEASE_ANNOTATION, RECORD_ANNOTATION
from tests.unit.audit.builders import OLD_LABEL, JournalBuilder, cases, messages, violations_of

MOVED = f"its driver label went from {OLD_LABEL!r} to"


def i2_messages(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(max_unavailable=2, failure_threshold=2), "I2")


@cases(
    "story texts",
    a_token_used_again=(
        "lease; release; !lease token=1",
        ["n1: a lease started with token 1, although token 1 was already used"],
    ),
    a_token_of_another_owner_used_again=(
        "give_lease token=7 owner=repair; lose_lease; lease",
        ["n1: a lease started with token 1, although token 7 was already used"],
    ),
    a_lease_replaced=(
        "lease; lease",
        ["n1: token 2 of upgrade replaced token 1, which was still held"],
    ),
    a_lease_replaced_by_an_older_token=(
        "lease token=5; rewrite lease=4 token=4",
        [
            "n1: a lease started with token 4, although token 5 was already used",
            "n1: token 4 of upgrade replaced token 5, which was still held",
        ],
    ),
    a_lease_of_a_person_changed=(
        "give_lease token=1 owner=human; lease token=2",
        ["n1: the lease of human with token 1 was changed by us"],
    ),
    a_lease_taken_where_a_person_had_claimed_the_node=(
        "claim; lease",
        ["n1: token 1 was taken although a person had claimed the node"],
    ),
    a_claim_dropped=(
        "lease; claim; drop_claim by=sluice-scheduler",
        ["n1: a person's claim of the lease was changed by us"],
    ),
    a_lease_of_a_repair_changed=(
        "give_lease token=1 owner=repair; lease token=2",
        ["n1: the lease of repair with token 1 was changed by us"],
    ),
    a_lease_of_mig_changed=(
        "give_lease token=1 owner=mig; lease token=2",
        ["n1: token 2 of upgrade replaced token 1, which was still held"],
    ),
    a_lease_changed_by_another_service_of_ours=(
        "lease; lose_lease by=sluice-driver",
        ["n1: sluice-driver changed the lease of an upgrade"],
    ),
    a_lease_without_a_record=(
        "rewrite lease=1",
        ["n1: it has a lease with token 1 but no record"],
    ),
    a_lease_with_another_token_than_its_record=(
        "lease; release; rewrite lease=2 cordon=True",
        ["n1: its record has token 1, but its lease has token 2"],
    ),
    label_and_cordon_changed_without_a_lease=(
        "rewrite driver=other cordon=True",
        ["n1: it was cordoned without a lease", f"n1: {MOVED} 'other' without a lease"],
    ),
    a_label_of_a_driver_pod_dropped_without_a_record=(
        f"driver_pod label={OLD_LABEL}; rewrite driver=None",
        [f"n1: {MOVED} '' without a lease"],
    ),
    a_label_changed_without_a_record=(
        "rewrite driver=other",
        [f"n1: {MOVED} 'other' without a lease"],
    ),
    a_label_dropped_with_the_record_kept=(
        "require; rewrite driver=None",
        [f"n1: {MOVED} '' without a lease"],
    ),
    a_label_of_a_changed_node_dropped=(
        "lease; lose_lease; rewrite started=True; drop_record driver=None",
        [f"n1: {MOVED} '' without a lease"],
    ),
    a_label_changed_with_the_record_dropped=(
        "lease; lose_lease; drop_record driver=other",
        [f"n1: {MOVED} 'other' without a lease"],
    ),
    a_label_of_a_driver_pod_dropped=(
        f"lease operation=validate label={OLD_LABEL}; prove; finish; drop_record driver=None",
        [f"n1: {MOVED} '' without a lease"],
    ),
)
def test_a_change_of_a_lease_or_without_one_is_a_violation(story: str, texts: list[str]) -> None:
    builder = JournalBuilder("n1").play(story)
    assert i2_messages(builder) == texts
    if builder.planted:
        assert violations_of(builder.journal()) == [("I2", "n1", builder.planted[0])]


@cases(
    "story",
    a_person_may_end_a_lease="lease; lose_lease; lease",
    another_service_may_write_other_fields="lease; churn 1 by=sluice-discovery",
    the_lease_of_another_owner_stays="give_lease token=7 owner=human; require; require",
    a_lease_of_a_person_uses_up_no_token="give_lease token=7 owner=human; lose_lease; lease",
    a_person_claims_a_node_in_flight="lease; claim; release; drop_claim; lease",
    a_lease_rewritten_with_its_token="lease; advance 60; rewrite lease=1",
    a_node_deleted_with_its_lease="lease; delete Node n1 by=sluice-discovery",
    a_forget_request_drops_the_label="upgrade; ask forget; drop_record driver=None clears=True",
    a_label_without_a_record_and_a_driver_pod_may_be_dropped=(
        f"driver_pod n2 label={OLD_LABEL}; rewrite driver=None"
    ),
    the_label_of_a_preinstalled_driver_may_be_dropped=(
        f"lease operation=validate label={OLD_LABEL}; prove; finish driver_pod_uid=;"
        "drop_record driver=None"
    ),
)
def test_one_lease_at_a_time_is_no_violation(story: str) -> None:
    assert i2_messages(JournalBuilder("n1").play(story)) == []


@pytest.mark.parametrize("key", [LEASE_ANNOTATION, RECORD_ANNOTATION])
def test_a_lease_or_record_of_an_earlier_node_of_the_same_name_is_void(key: str) -> None:
    builder = JournalBuilder("n1").play("lease token=9")
    old = builder.objects["Node", "n1"]["metadata"]["annotations"][key]
    builder.play("delete Node n1; node n1 uid=uid-other")
    builder.annotate("n1", key, old)
    builder.lease("n1", token=1)
    assert violations_of(builder.journal()) == []


@cases(
    "story problems",
    no_trace=("lease; release; lose_record; ask adopt; lease token=1", 0),
    an_entry_of_an_agent=(
        "lease; op plugin quiesce; release; lose_record; ask adopt; lease token=1",
        1,
    ),
    an_entry_of_another_node=(
        "lease; lease n2; op plugin quiesce name=n2; release; lose_record; ask adopt;lease token=1",
        0,
    ),
    a_later_entry=(
        (
            "lease; advance 50; op plugin quiesce; advance -50; release; lose_record; ask adopt;"
            "lease token=1"
        ),
        0,
    ),
)
def test_after_a_lost_record_tokens_continue_from_the_journals_of_the_agents(
    story: str, problems: int
) -> None:
    builder = JournalBuilder("n1", "n2").play(story)
    assert len(i2_messages(builder)) == problems
    assert messages(builder.journal(entries=None), "I2") == []


@cases(
    "losses problems",
    record_and_lease=("lose_record value=None; lose_lease", 0),
    lease_and_record=("lose_lease; lose_record value=None", 0),
    only_the_record=("lose_record value=None", 0),
    only_the_lease=("lose_lease", 1),
)
def test_a_token_is_known_until_lease_and_record_are_gone(losses: str, problems: int) -> None:
    builder = JournalBuilder("n1").play(f"lease; {losses}; ask adopt")
    builder.records.pop("n1")
    builder.play("lease token=1; release; lease token=1")
    assert len(i2_messages(builder)) == problems + 1


LATER_OP = "driver of n1 started swap 1.2 after it had seen the later op 1.3"
OLDER_EPOCH = "driver of n1 started swap 1.2 under epoch 2, after it had seen epoch 3"
TWO_TOKENS = "lease token=1; release; lease token=2; started driver validate;"


@cases(
    "story texts",
    an_older_epoch=("started epoch=3; started op=2 epoch=2", [OLDER_EPOCH]),
    an_older_epoch_than_that_of_a_step=(
        "started epoch=2; entry step epoch=3; started op=2 epoch=2",
        [OLDER_EPOCH],
    ),
    an_older_op=("started op=3; started op=2", [LATER_OP]),
    an_older_epoch_of_idle=(
        "started discovery idle epoch=3; started driver idle epoch=2; started driver idle epoch=1",
        ["driver of n1 started idle 1.1 under epoch 1, after it had seen epoch 2"],
    ),
    a_resumed_op=("started op=2 epoch=2; started op=2 epoch=2", []),
    a_refused_op=("started op=2 epoch=2; entry refused epoch=1; started op=2 epoch=2", []),
    a_refused_op_of_a_later_order=("entry refused op=9 epoch=9 token=9; started", []),
    another_boot_and_another_component=(
        "started op=5 epoch=5; started validator validate epoch=5; reboot; started op=6 epoch=4",
        [],
    ),
    idle_without_a_lease=(
        "release; advance 100; started driver idle; started plugin idle token=0",
        [],
    ),
    an_op_that_ends_after_its_lease=(
        "started; release; advance 100; entry finished",
        [],
    ),
)
def test_an_agent_starts_no_older_op(story: str, texts: list[str]) -> None:
    builder = JournalBuilder("n1").play(f"lease; advance 10; {story}")
    assert messages(builder.journal()) == texts


DEPOSED = "entry step driver swap op=2 epoch=3; entry step driver validate op=3 epoch=3"
TOOK = "validator of n1 took validate 1.2 under epoch 2, when driver already had the command"


@cases(
    "story texts",
    after_a_command_of_its_own=(
        f"{DEPOSED}; advance 6; entry step validator validate op=2 epoch=2",
        [f"{TOOK} 1.3 of epoch 3"],
    ),
    once_per_command=(
        (
            f"{DEPOSED}; advance 6; entry step validator validate op=2 epoch=2;"
            "started validator validate op=2 epoch=2; finished validator validate op=2 epoch=2"
        ),
        [f"{TOOK} 1.3 of epoch 3"],
    ),
    taken_before=(
        (
            f"entry step validator validate op=2 epoch=2; {DEPOSED}; advance 6;"
            "started validator validate op=2 epoch=2"
        ),
        [],
    ),
    read_just_before=(f"{DEPOSED}; advance 5; entry step validator validate op=2 epoch=2", []),
    while_the_slots_are_adopted=(
        (
            "started driver swap op=2 epoch=2; entry step driver swap op=2 epoch=3; advance 6;"
            "started validator validate op=2 epoch=2"
        ),
        [],
    ),
    idle=(f"{DEPOSED}; advance 6; started validator idle op=2 epoch=2", []),
    of_the_same_leader=(f"{DEPOSED}; advance 6; started validator validate op=2 epoch=3", []),
    refused=(f"{DEPOSED}; advance 6; entry refused validator validate op=2 epoch=2", []),
    of_another_boot=(f"{DEPOSED}; reboot; advance 6; started validator validate op=2 epoch=2", []),
    of_another_node=(
        f"lease n2; {DEPOSED}; advance 6; started validator validate name=n2 op=2 epoch=2",
        [],
    ),
)
def test_no_command_of_an_earlier_leader_is_taken_after_a_later_leader_sent_its_own(
    story: str, texts: list[str]
) -> None:
    builder = JournalBuilder("n1", "n2").play(f"lease; advance 10; {story}")
    assert i2_messages(builder) == texts


@cases(
    "story texts",
    of_two_components=(
        "started plugin quiesce token=1",
        ["plugin of n1 started quiesce 1.1 when driver already had token 2"],
    ),
    of_one_component=(
        "started driver validate op=2 token=1",
        ["driver of n1 started validate 1.2 after it had seen the later op 2.1"],
    ),
    of_the_latest_component=(
        "started plugin quiesce; started driver validate op=2 token=1",
        [
            "driver of n1 started validate 1.2 after it had seen the later op 2.1",
            "driver of n1 started validate 1.2 when plugin already had token 2",
        ],
    ),
    of_an_op_that_only_ends=("entry finished plugin quiesce token=1", []),
)
def test_starting_under_an_older_token_is_a_violation(story: str, texts: list[str]) -> None:
    builder = JournalBuilder("n1").play(f"{TWO_TOKENS} {story}")
    assert messages(builder.journal()) == texts


@pytest.mark.parametrize("command", ["swap", "install", "validate", "quiesce"])
def test_starting_under_a_token_without_a_lease_is_a_violation(command: str) -> None:
    builder = JournalBuilder("n1").play(f"lease; advance 10; started driver {command} token=2")
    text = f"driver of n1 started {command} 2.1 under token 2 when the lease had token 1"
    assert i2_messages(builder) == [text]


@pytest.mark.parametrize(
    ("command", "late"),
    [("swap", True), ("install", True), ("validate", False), ("quiesce", False)],
)
def test_changing_commands_need_the_current_lease(command: str, late: bool) -> None:
    builder = JournalBuilder("n1")
    builder.play(f"lease; advance 10; release; advance 1; started driver {command}")
    assert i2_messages(builder) == []
    builder.play(f"advance 2; started driver {command} op=2")
    text = f"driver of n1 started {command} 1.2 under token 1 when the node had no lease"
    assert i2_messages(builder) == [text] * late


def test_a_node_without_revisions_is_not_judged_by_its_lease() -> None:
    builder = JournalBuilder("n1").play("lease; started")
    assert messages(builder.journal(revisions=())) == []


@pytest.mark.parametrize(("offset", "problems"), [(-2.5, 1), (-2.0, 0), (12.0, 0), (12.5, 1)])
def test_clock_skew_is_tolerated(offset: float, problems: int) -> None:
    builder = JournalBuilder("n1").play(
        f"lease; advance 10; release; advance {offset - 10}; started"
    )
    assert len(i2_messages(builder)) == problems


@cases(
    "loss again problems",
    after_the_start=("lose_journal ago=30", "started", 0),
    before_the_start=("lose_journal ago=90", "started", 1),
    after_the_repetition=("lose_journal", "started", 1),
    of_another_component=("lose_journal validator ago=30", "started", 1),
    of_another_node=("lose_journal name=n2 ago=30", "started", 1),
    and_another_op=("lose_journal ago=30", "started op=2", 1),
)
def test_an_agent_that_lost_its_journal_may_repeat_its_op_without_a_lease(
    loss: str, again: str, problems: int
) -> None:
    story = f"lease; advance 10; started; advance 20; release; advance 60; {again}; {loss}"
    assert len(i2_messages(JournalBuilder("n1").play(story))) == problems
