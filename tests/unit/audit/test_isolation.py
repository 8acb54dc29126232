"""I7: two runs of one seed, with and without sick nodes."""

from libs.audit import AuditJournal, isolation
from libs.contracts.node import STATE_LABEL, UpgradeState
from tests.unit.audit.builders import JournalBuilder


def run(*, before_n2: float = 0.0, sick: bool = False, finishes: bool = True) -> AuditJournal:
    story = JournalBuilder("n1", "n2", "n3")
    story.upgrade("n1")
    if sick:
        story.take_lease("n3")
        story.start("n3")
    story.advance(before_n2)
    if finishes:
        story.upgrade("n2")
    if not sick:
        story.upgrade("n3")
    return story.journal(max_unavailable=2)


def test_the_healthy_ones_are_done_as_if_there_were_no_sick_one() -> None:
    assert isolation(run(sick=True), run(), sick=["n3"]) == ()


def test_where_nothing_is_known_nothing_is_compared() -> None:
    assert isolation(run(sick=True), AuditJournal(), sick=["n3"]) == ()


def test_one_is_done_later() -> None:
    (late,) = isolation(run(sick=True, before_n2=40), run(), sick=["n3"])
    assert (late.invariant, late.node) == ("I7", "n2")
    assert late.message == "n2 is healthy, but finished 40 s later in the run with sick nodes"
    assert isolation(run(sick=True, before_n2=40), run(), sick=["n3"], tolerance=40) == ()


def test_one_is_done_earlier() -> None:
    assert isolation(run(sick=True), run(before_n2=40), sick=["n3"]) == ()


def test_one_is_never_done() -> None:
    (never,) = isolation(run(sick=True, finishes=False), run(), sick=["n3"])
    assert never.message == "n2 is healthy, but did not finish in the run with sick nodes"


def test_what_a_person_calls_done_is_not() -> None:
    story = JournalBuilder("n1", "n2", "n3")
    story.label("n2", STATE_LABEL, UpgradeState.UPGRADE_DONE)
    assert isolation(story.journal(), run(), sick=["n1", "n3"])[0].node == "n2"


def test_sick_nodes_themselves_are_not_compared() -> None:
    assert isolation(run(sick=True, finishes=False), run(), sick=["n2", "n3"]) == ()


def test_what_we_write_to_a_node_after_it_was_done_is_no_delay() -> None:
    story = JournalBuilder("n1", "n2", "n3")
    story.upgrade("n1")
    story.upgrade("n2")
    story.advance(500)
    story.mark_required("n2")
    assert isolation(story.journal(), run(), sick=["n3"]) == ()
