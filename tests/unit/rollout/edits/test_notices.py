"""Second edits: what the label is, and what the record says."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, LeaseOwner, Operation
from libs.rollout.edits import second_edit_wait
from libs.rollout.node_writes import current_record
from libs.rollout.views.node import NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    PERSON,
    done,
    in_flight_node,
    instant,
    label_of,
    lease,
)

STARTED = in_flight_node("pod-restart-required")
REMOVED = in_flight_node(
    "pod-restart-required",
    record={"operation": Operation.REMOVE, "label": "", "target": ""},
    driver_label=label_of(OLD),
)

STATE = (f"{STATE_LABEL} is drain-required", "upgrade-done")
GONE = (DRIVER_LABEL, label_of(NEW))

SAID: dict[str, tuple[NodeView, tuple[str, ...]]] = {
    "a state": (replace(done(), state="drain-required"), STATE),
    "a state, and at rest a driver label": (
        replace(done(), state="drain-required", driver_label=""),
        STATE,
    ),
    "a driver label": (replace(STARTED, driver_label=""), GONE),
    "one that should not be there": (
        REMOVED,
        (f"{DRIVER_LABEL} is {label_of(OLD)}",),
    ),
    "both": (
        replace(STARTED, state="upgrade-done", driver_label=""),
        (f"{STATE_LABEL} is upgrade-done", "pod-restart-required", *GONE),
    ),
    "neither, before the start": (replace(in_flight_node(), driver_label=""), ()),
    "neither, under the lease of another": (
        replace(STARTED, driver_label="", lease=lease(owner=LeaseOwner.HUMAN)),
        (),
    ),
    "neither, as all is in order": (STARTED, ()),
}


@pytest.mark.parametrize("what", SAID)
def test_a_second_edit_names_what_to_restore(what: str) -> None:
    view, text = SAID[what]
    record = current_record(view)
    assert record is not None
    writers = {NodeField.STATE: PERSON, NodeField.DRIVER: "argocd"}
    wait = second_edit_wait(replace(view, last_managers=writers), record, instant())
    detail = wait.detail.partition("attempt: ")[2]
    assert bool(detail) is bool(text)
    assert [part for part in text if part not in detail] == []
    assert (STATE_LABEL in detail, DRIVER_LABEL in detail) == (
        any(STATE_LABEL in part for part in text),
        any(DRIVER_LABEL in part for part in text),
    )
    assert (wait.since, wait.until) == (NOW, None)
    if what == "both":
        assert f"{PERSON} and argocd" in wait.who
