"""I7: two runs of one seed, with and without sick nodes."""

from libs.audit import AuditJournal, isolation
from libs.contracts.node import STATE_LABEL, UpgradeState
from tests.unit.audit.builders import JournalBuilder


def run(*, before_n2: float = 0.0, sick: bool = False, finishes: bool = True) -> AuditJournal:
    builder = JournalBuilder("n1", "n2", "n3")
    builder.upgrade("n1")
    if sick:
        builder.lease_and_start("n3")
    builder.advance(before_n2)
    if finishes:
        builder.upgrade("n2")
    if not sick:
        builder.upgrade("n3")
    return builder.journal(max_unavailable=2)


def test_equal_times_are_no_delay() -> None:
    assert isolation(run(sick=True), run(), sick=["n3"]) == ()


def test_empty_journals_have_no_delay() -> None:
    assert isolation(run(sick=True), AuditJournal(), sick=["n3"]) == ()


def test_a_later_node_is_a_violation() -> None:
    (late,) = isolation(run(sick=True, before_n2=40), run(), sick=["n3"])
    assert (late.invariant, late.node) == ("I7", "n2")
    assert late.message == "n2 is healthy, but finished 40 s later in the run with sick nodes"
    assert isolation(run(sick=True, before_n2=40), run(), sick=["n3"], tolerance=40) == ()


def test_an_earlier_node_is_no_violation() -> None:
    assert isolation(run(sick=True), run(before_n2=40), sick=["n3"]) == ()


def test_an_unfinished_node_is_a_violation() -> None:
    (never,) = isolation(run(sick=True, finishes=False), run(), sick=["n3"])
    assert never.message == "n2 is healthy, but did not finish in the run with sick nodes"


def test_only_our_own_write_finishes_a_node() -> None:
    builder = JournalBuilder("n1", "n2", "n3")
    builder.label("n2", STATE_LABEL, UpgradeState.UPGRADE_DONE)
    assert isolation(builder.journal(), run(), sick=["n1", "n3"])[0].node == "n2"


def test_sick_nodes_themselves_are_not_compared() -> None:
    assert isolation(run(sick=True, finishes=False), run(), sick=["n2", "n3"]) == ()


def test_later_writes_to_a_finished_node_are_no_delay() -> None:
    builder = JournalBuilder("n1", "n2", "n3")
    builder.upgrade("n1")
    builder.upgrade("n2")
    builder.advance(500)
    builder.mark_required("n2")
    assert isolation(builder.journal(), run(), sick=["n3"]) == ()
