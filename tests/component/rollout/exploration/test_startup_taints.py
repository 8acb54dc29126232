"""One node that joins with a startup taint: every order of events, faults and acts of people."""

import pytest

from tests.component.rollout.exploration.explorer import ExplorationStart, explore
from tests.component.rollout.exploration.starts import bring_up_tainted, disturbances

MOST = 20_000
STRIDE = 3
"""`python -m tools.soak explore` lets everything happen at every moment, with swaps."""
FAULTS = ("crash_driver", "reboot", "elect_leader", "freeze_view")
ACTS = ("taint", "untaint", "cordon", "set_record", "set_request")


def test_any_two_events_may_swap() -> None:
    start = ExplorationStart(name="calm", new_stage=bring_up_tainted)
    found = explore(start, swaps=1, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 500
    assert found.ends


@pytest.mark.dear("the play of each moment: that is what it shows")
@pytest.mark.parametrize("what", [*FAULTS, *ACTS])
def test_faults_and_acts_at_any_moment(what: str) -> None:
    start = ExplorationStart(
        name=what,
        new_stage=bring_up_tainted,
        stride=STRIDE,
        faults=disturbances([what]) if what in FAULTS else (),
        acts=disturbances([what]) if what in ACTS else (),
    )
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 200
