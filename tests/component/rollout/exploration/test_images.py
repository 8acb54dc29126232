"""One node whose image is brought before it is drained: every order of events, faults and acts."""

import pytest

from tests.component.rollout.exploration.explorer import ExplorationStart, explore
from tests.component.rollout.exploration.starts import disturbances, upgrade_with_image

MOST = 20_000
STRIDE = 3
"""`python -m tools.soak explore` lets everything happen at every moment, with swaps."""
FAULTS = ("reboot", "disconnect_kubelet", "stop_agent", "elect_leader", "stop_bus", "freeze_view")
ACTS = ("set_request", "change_target", "flap_target", "delete_node", "delete_driver_pod")


def test_any_two_events_may_swap() -> None:
    start = ExplorationStart(name="calm", new_stage=upgrade_with_image)
    found = explore(start, swaps=1, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 478
    assert found.ends


@pytest.mark.dear("the play of each moment: that is what it shows")
@pytest.mark.parametrize("what", [*FAULTS, *ACTS])
def test_faults_and_acts_at_any_moment(what: str) -> None:
    start = ExplorationStart(
        name=what,
        new_stage=upgrade_with_image,
        stride=STRIDE,
        faults=disturbances([what]) if what in FAULTS else (),
        acts=disturbances([what]) if what in ACTS else (),
    )
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states > 200
