"""Plans on the demo's machines: from how they came up, and then from how they were upgraded."""

from pathlib import Path

import pytest

from demo.fleet import SERVING, make_fleet
from demo.world import demo_world
from libs.contracts.identities import Identity, Writer
from libs.contracts.queries import PlanAnswer, PlanQuery
from libs.ctl.rollout_history import RolloutHistory
from libs.testing.bus.queries import send_query
from tests.component.campaign.admin import NEW, OLD, POOL
from tests.component.campaign.world import CampaignWorld, run_world

NEXT = "590.48.01"
FLEET = 8
"""Machines of the fleet; half of them are in the pool, more than are upgraded at once."""
ERROR = 0.2
"""The error that nine of ten plans keep within, as a share of what the rollout took."""
MODEL = demo_world(1, bad=Path("/no-driver-is-bad"))


async def planned(world: CampaignWorld, version: str) -> PlanAnswer:
    bus = world.bus.connect(Identity(writer=Writer.CTL))
    try:
        answer = await send_query(
            PlanQuery(pool=POOL, driver_version=version),
            bus=bus,
            clock=world.sim.clock,
            cluster="default",
            service="scheduler",
            timeout=60.0,
        )
    finally:
        bus.kill()
    assert isinstance(answer, PlanAnswer), answer
    return answer


async def upgraded_twice(world: CampaignWorld) -> tuple[list[PlanAnswer], RolloutHistory]:
    """Bring a pool up, and upgrade it twice after a plan."""
    pool = make_fleet(FLEET).pool(SERVING)
    assert pool is not None
    await world.install()
    for name in pool.nodes:
        world.add_machine(name)
    await world.apply_policy(OLD, maxParallelUpgrades=0, maxUnavailable=pool.max_unavailable)
    world.keep_running()
    assert await world.until(world.is_rolled_out, within=600.0)
    await world.create_service("search", pool.nodes[0])
    await world.sleep(10)
    plans: list[PlanAnswer] = []
    for version in (NEW, NEXT):
        plans.append(await planned(world, version))
        await world.apply_policy(version)
        assert await world.until(world.is_rolled_out, within=600.0)
        await world.sleep(10)
    history = RolloutHistory()
    for event in await world.events():
        history.add(event, event.open())
    return plans, history


@pytest.mark.dear("two plans, each of a hundred plays, and the upgrades that they foretell")
def test_an_upgrade_takes_what_the_plan_says_from_the_first_one_on() -> None:
    plans, history = run_world(upgraded_twice, seed=1, model=MODEL)
    assert [plan.measured_nodes for plan in plans] == [FLEET // 2] * 2
    assert f"as {FLEET // 2} nodes took to come up" in " ".join(plans[0].remarks)
    assert f"as {FLEET // 2} nodes took last" in " ".join(plans[1].remarks)
    for plan in plans:
        compared = history.comparison(POOL, plan.target, now=0.0)
        assert compared.complete
        assert compared.planned_at is not None
        assert compared.error is not None
        assert abs(compared.error) <= ERROR, (compared.makespan, compared.planned_makespan)
