"""The journal of a simulated run: every invariant of one run is judged, and plants are found."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from libs.audit import AuditJournal, judge
from libs.contracts.events import Event, EventKind
from libs.contracts.journal import Revision
from libs.contracts.paths import DRIVER_STARTED
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import scenario

SEED = 3
"""A calm seed, in which nodes are upgraded."""


@pytest.fixture(scope="module")
def journal() -> AuditJournal:
    result = run_scenario(scenario(SEED))
    assert result.failure is None
    return result.stage.journal()


def test_a_run_without_faults_is_judged_in_full(journal: AuditJournal) -> None:
    result = judge(journal)
    assert (result.violations, result.not_judged) == ((), {})


def _without_grants(revision: Revision) -> Revision:
    changed = {path: both for path, both in revision.changed.items() if ".inFlight" not in path}
    return replace(revision, changed=changed)


def _without_starts(revision: Revision) -> Revision:
    changed = {path: both for path, both in revision.changed.items() if path != DRIVER_STARTED}
    return replace(revision, changed=changed)


def _of_another_pod(revision: Revision) -> Revision:
    return replace(revision, uid=f"not-{revision.uid}") if revision.kind == "Pod" else revision


@pytest.mark.parametrize(
    ("plant", "invariants"),
    [(_without_grants, {"I1", "I8"}), (_without_starts, {"I3"}), (_of_another_pod, {"I3"})],
    ids=["no grants", "no starts", "other pods"],
)
def test_a_plant_in_the_revisions_is_found(
    journal: AuditJournal, plant: Callable[[Revision], Revision], invariants: set[str]
) -> None:
    revisions = tuple(map(plant, journal.revisions or ()))
    result = judge(replace(journal, revisions=revisions))
    assert {found.invariant for found in result.violations} == invariants


def _with_event(journal: AuditJournal, kind: EventKind, **fields: Any) -> AuditJournal:
    """Change the first event of a kind, beside the original or in its place."""
    events = list(journal.events or ())
    index = next(index for index, event in enumerate(events) if event.kind == kind)
    again = fields.pop("again", False)
    changed: Event = replace(events[index], **fields)
    events[index : index + (not again)] = [changed]
    return replace(journal, events=tuple(events))


@pytest.mark.parametrize("kind", [EventKind.STEP, EventKind.COMMAND, EventKind.WAIT])
def test_an_id_with_two_contents_is_found(journal: AuditJournal, kind: EventKind) -> None:
    result = judge(_with_event(journal, kind, message="another", again=True))
    assert {found.invariant for found in result.violations} == {"I11"}


def test_a_step_that_no_revision_shows_is_found(journal: AuditJournal) -> None:
    result = judge(_with_event(journal, EventKind.STEP, node="another"))
    assert {found.invariant for found in result.violations} == {"I9"}
