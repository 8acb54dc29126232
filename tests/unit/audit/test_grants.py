"""I1 and I8: every lease and every start is granted on the Rollout before the Node is written."""

from msgspec.structs import replace

from libs.audit import judge
from libs.contracts.journal import Revision
from tests.unit.audit.builders import POOL, TARGET, JournalBuilder, cases, messages

NOT_GRANTED = f"which the Rollout of pool {POOL} did not grant"
FOR = f"under token 1 for target {TARGET},"
LEASED = f"n1 was leased {FOR} {NOT_GRANTED}"
STARTED = f"n1 was started {FOR} {NOT_GRANTED}"
OTHERS = "grant n2;"
"""The pool has a Rollout, with the grant of another node."""


def i1_and_i8(builder: JournalBuilder) -> list[str]:
    journal = builder.journal(max_unavailable=5, failure_threshold=9)
    return [text for invariant in ("I1", "I8") for text in messages(journal, invariant)]


@cases(
    "story texts",
    a_lease_without_a_grant=(f"{OTHERS} lease granted=False", [LEASED]),
    a_lease_and_a_start_without_a_grant=(
        f"{OTHERS} lease granted=False; start",
        [LEASED, STARTED],
    ),
    a_lease_with_the_start=(
        f"{OTHERS} lease granted=False operation=restart started=True",
        [LEASED],
    ),
    a_validation=(f"{OTHERS} lease granted=False operation=validate", [LEASED]),
    a_removal=(
        f"{OTHERS} lease granted=False operation=remove target= label=",
        [f"n1 was leased under token 1 for target none, {NOT_GRANTED}"],
    ),
    a_grant_of_another_token=("grant token=2; lease granted=False", [LEASED]),
    a_grant_of_another_target=("grant target=t9; lease granted=False", [LEASED]),
    a_grant_on_another_pool=("grant n2; grant pool=other; lease granted=False", [LEASED]),
    a_refused_grant=(f"{OTHERS} grant code=409; lease granted=False", [LEASED]),
    a_grant_after_the_lease=(f"{OTHERS} lease granted=False; grant token=1", [LEASED]),
    a_grant_that_was_withdrawn=("grant; withdraw; advance 3.5; lease granted=False", [LEASED]),
    a_start_after_the_grant_was_withdrawn=("lease; withdraw; advance 10; start", [STARTED]),
    another_target_without_a_grant=(
        "lease; rewrite target=t9",
        [f"n1 was moved under token 1 for target t9, {NOT_GRANTED}"],
    ),
    a_lost_rollout=(f"grant; delete Rollout {POOL}; advance 10; lease granted=False", [LEASED]),
)
def test_a_write_without_a_grant_is_a_violation(story: str, texts: list[str]) -> None:
    assert i1_and_i8(JournalBuilder("n1", "n2").play(story)) == texts


@cases(
    "story",
    a_granted_upgrade="lease; start; advance 60; withdraw; prove; finish",
    a_grant_withdrawn_within_the_round="grant; withdraw; advance 3; lease granted=False",
    a_rollout_lost_within_the_round=f"grant; delete Rollout {POOL}; lease granted=False",
    another_target_with_a_grant="lease; grant token=1 target=t9; rewrite target=t9",
    a_lease_before_the_journal="lease; begin; start; grant n2",
    a_grant_before_the_journal="grant; begin; lease granted=False; start",
    a_mark_and_a_release="require; lease; advance 10; release",
    a_lease_of_a_person=f"{OTHERS} give_lease token=7 owner=human",
)
def test_a_granted_write_is_no_violation(story: str) -> None:
    assert i1_and_i8(JournalBuilder("n1", "n2").play(story)) == []


def test_rollouts_without_entries_in_flight_grant_nothing() -> None:
    builder = JournalBuilder("n1", "n2").play("upgrade; upgrade n2")
    builder.revisions = [_without_in_flight(revision) for revision in builder.revisions]
    found = i1_and_i8(builder)
    assert len(found) == 4
    assert {text.partition(" under")[0] for text in found} == {
        f"{name} was {action}" for name in ("n1", "n2") for action in ("leased", "started")
    }


def _without_in_flight(revision: Revision) -> Revision:
    changed = {path: both for path, both in revision.changed.items() if ".inFlight." not in path}
    return replace(revision, changed=changed)


def test_a_pool_without_a_rollout_is_named_as_a_missing_source() -> None:
    result = judge(JournalBuilder("n1").play("lease granted=False; start").journal())
    assert result.violations == ()
    missing = f"the Rollout of pool {POOL}"
    assert (result.not_judged["I1"], result.not_judged["I8"]) == (missing, missing)
