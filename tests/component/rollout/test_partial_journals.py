"""A journal that begins in the middle of rollouts without a defect shows no violation."""

import pytest

from libs.audit import AuditJournal
from libs.audit.partial import Coverage
from libs.ctl.collect.audit import judged
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import scenario

PARTS = 5


def found_in(journal: AuditJournal, part: int) -> list[str]:
    """Return the violations that `sluice audit` finds from this part of the journal on."""
    revisions = journal.revisions or ()
    cut = revisions[len(revisions) * part // PARTS :]
    result = judged(cut, journal.events, logs=["cut.log"], events_problem="")
    return [message for each in result.invariants for message in each.first]


@pytest.mark.parametrize("seed", [100, 104, 109, 1_000_003, 5_000_002])
def test_what_was_before_the_log_is_no_violation(seed: int) -> None:
    journal = run_scenario(scenario(seed)).stage.journal()
    for part in range(PARTS):
        assert found_in(journal, part) == []


def test_a_node_is_judged_from_its_first_operation_in_the_log_on() -> None:
    revisions = run_scenario(scenario(100)).stage.journal().revisions or ()
    whole, end = Coverage(revisions), Coverage(revisions[-3:])
    assert len(whole.unjudged) < len(end.nodes | whole.nodes)
    assert set(end.unjudged) == end.nodes
