"""I7: two runs of one seed, with and without sick nodes."""

import pytest

from libs.audit import AuditJournal, isolation
from tests.unit.audit.builders import JournalBuilder, cases

LATE = "n2 is healthy, but finished 40 s later in the run with sick nodes"
NEVER = "n2 is healthy, but did not finish in the run with sick nodes"


def journal(story: str) -> AuditJournal:
    return JournalBuilder("n1", "n2", "n3").play(story).journal(max_unavailable=2)


HEALTHY = journal("upgrade n1; upgrade n2; upgrade n3")


@cases(
    "with_sick without_sick sick texts",
    equal_times=("upgrade n1; begin_upgrade n3; upgrade n2", HEALTHY, ["n3"], []),
    an_empty_journal=("upgrade n1", AuditJournal(), ["n3"], []),
    a_later_node=("upgrade n1; advance 40; upgrade n2", HEALTHY, ["n3"], [LATE]),
    an_earlier_node=(
        "upgrade n1; upgrade n2",
        journal("upgrade n1; advance 40; upgrade n2"),
        ["n3"],
        [],
    ),
    an_unfinished_node=("upgrade n1; begin_upgrade n3", HEALTHY, ["n3"], [NEVER]),
    a_node_finished_by_a_person=("label_state upgrade-done n2", HEALTHY, ["n1", "n3"], [NEVER]),
    a_sick_node=("upgrade n1", HEALTHY, ["n2", "n3"], []),
    a_later_write=("upgrade n1; upgrade n2; advance 500; require n2", HEALTHY, ["n3"], []),
)
def test_only_healthy_nodes_that_end_late_are_delayed(
    with_sick: str, without_sick: AuditJournal, sick: list[str], texts: list[str]
) -> None:
    violations = isolation(journal(with_sick), without_sick, sick=sick)
    assert [violation.message for violation in violations] == texts
    assert all((found.invariant, found.node) == ("I7", "n2") for found in violations)


@pytest.mark.parametrize(("tolerance", "problems"), [(39.0, 1), (40.0, 0)])
def test_a_delay_up_to_the_tolerance_is_no_violation(tolerance: float, problems: int) -> None:
    late = journal("upgrade n1; advance 40; upgrade n2")
    assert len(isolation(late, HEALTHY, sick=["n3"], tolerance=tolerance)) == problems
