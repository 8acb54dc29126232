"""A proof is withdrawn at the gate only while faults may happen."""

import pytest

from libs.contracts.paths import REQUEST
from libs.testing.stage.worlds import SteadyWorld
from tests.component.campaign.actions import ALL_ACTIONS
from tests.component.campaign.test_nodes import start_world
from tests.component.campaign.user_actions import ScheduledAction
from tests.component.campaign.world import CampaignWorld, run_world

UNPROVE = ScheduledAction(at=0.0, kind="unprove-at-gate", node="a", value=5.0)


@pytest.mark.parametrize(
    ("ends", "requested"),
    [(False, ["adopt"]), (True, [])],
    ids=["faults go on", "faults end while the pod starts"],
)
def test_a_proof_is_withdrawn_only_until_all_faults_are_over(
    *, ends: bool, requested: list[str]
) -> None:
    async def story(world: CampaignWorld) -> None:
        await start_world(world)
        assert await ALL_ACTIONS[UNPROVE.kind].perform(world, UNPROVE)
        await world.sleep(0.5)
        if ends:
            await world.end_faults()
        await world.sleep(60)
        by_person = [revision for revision in world.revisions() if revision.user == "person"]
        deleted = [revision.kind for revision in by_person if revision.verb == "delete"]
        assert deleted == ["Pod"]
        requests = [
            revision.changed[REQUEST][1] for revision in by_person if REQUEST in revision.changed
        ]
        assert requests == requested

    run_world(story, seed=1, model=SteadyWorld())
