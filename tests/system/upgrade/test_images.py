"""Images that a node needs and cannot get: what is drained for them, and what is said."""

import time
from collections.abc import Callable

import pytest

from libs.contracts.events import StepEvent
from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.testing.image.driver_settings import DriverSettings
from libs.testing.image.testing import driver_image
from tests.summary import FIGURE
from tests.system.upgrade.audit import assert_audit_passes, audited, observe_driverless
from tests.system.upgrade.bus_events import new_events
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.workload import SERVICE
from tests.system.upgrade.world import NEW, OLD, World

pytestmark = SOAK_ONLY

RUNS_WITHIN, NAMED_WITHIN, UPGRADED_WITHIN = 240.0, 120.0, 420.0
DOWN_FOR = 45.0
CANNOT = "cannot be brought to the node: "


@pytest.mark.parametrize("missing", [NEW, OLD], ids=["the new image", "the image to go back to"])
async def test_nothing_is_drained_while_an_image_cannot_be_pulled(
    world: World, missing: str, record_property: Callable[[str, object], None]
) -> None:
    image = driver_image(missing)
    async with audited(world):
        pods = await service_pods(world)
        for node in world.ground.nodes:
            await node.remove_image(image)
        began = time.monotonic()
        await world.apply_policy(NEW)
        said = [
            await world.until_waiting(
                node.name, WaitCode.PREFLIGHT, image, CANNOT, within=NAMED_WITHIN
            )
            for node in world.ground.nodes
        ]
        named = time.monotonic() - began
        await rests(world, DOWN_FOR)
        assert await service_pods(world) == pods
        assert [each.kernel.version() for each in world.machines] == [OLD, OLD]
        for node in world.ground.nodes:
            await node.import_image(world.archive)
        returned = time.monotonic()
        await world.until_all_run(NEW, within=UPGRADED_WITHIN)
        seconds = time.monotonic() - returned
        record_property(FIGURE, f"no {image}: named after {named:.0f} s: {said[0]}")
        record_property(FIGURE, f"upgrade of two nodes since it is there: {seconds:.0f} s")
        await world.kubectl.wait("condition=Available", f"deployment/{SERVICE}")


async def test_an_image_that_vanishes_after_the_cordon_is_named_and_waited_for(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    image = driver_image(NEW)
    async with audited(world):
        async with new_events(world) as events:
            await world.apply_policy(NEW)
            name = await events.first_node(is_drained)
            await world.machine(name).node.remove_image(image)
        began = time.monotonic()
        said = await world.until_waiting(name, WaitCode.GATE, image, within=NAMED_WITHIN)
        named = time.monotonic() - began
        assert await world.cordoned() == [name]
        await world.machine(name).node.import_image(world.archive)
        returned = time.monotonic()
        await world.until_all_run(NEW, within=UPGRADED_WITHIN)
        seconds = time.monotonic() - returned
        record_property(FIGURE, f"{image} vanished: named after {named:.0f} s: {said}")
        record_property(FIGURE, f"upgrade of two nodes since it is there: {seconds:.0f} s")
        assert await world.cordoned() == []


def is_drained(body: object) -> bool:
    return isinstance(body, StepEvent) and body.after == UpgradeState.POD_DELETION_REQUIRED


async def test_the_way_back_waits_for_its_image(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    image = driver_image(OLD)
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer:
        await world.until_all_run(OLD, within=RUNS_WITHIN)
        for machine in world.machines:
            machine.set_driver(NEW, DriverSettings(failure="insmod: ERROR: Invalid module format"))
        await world.apply_policy(NEW)
        await world.until_halted(within=UPGRADED_WITHIN)
        states = await world.states()
        (failed,) = [name for name in states if states[name] == UpgradeState.UPGRADE_FAILED]
        await world.machine(failed).node.remove_image(image)
        began = time.monotonic()
        await world.apply_policy(OLD)
        said = await world.until_waiting(
            failed, WaitCode.PREFLIGHT, image, CANNOT, within=NAMED_WITHIN
        )
        named = time.monotonic() - began
        assert await world.cordoned() == [failed]
        await world.machine(failed).node.import_image(world.archive)
        returned = time.monotonic()
        await world.until_all_run(OLD, within=UPGRADED_WITHIN)
        seconds = time.monotonic() - returned
        record_property(FIGURE, f"no {image} to go back to: named after {named:.0f} s: {said}")
        record_property(FIGURE, f"the way back since it is there: {seconds:.0f} s")
        assert await world.cordoned() == []
        await assert_audit_passes(world, observer)


async def rests(world: World, seconds: float) -> None:
    """Watch for a while that no node is cordoned."""
    until = time.monotonic() + seconds

    async def is_over() -> bool:
        assert await world.cordoned() == []
        return time.monotonic() > until

    await world.until(is_over, within=seconds + 60.0)


async def service_pods(world: World) -> set[str]:
    """Return the uids of the users' pods."""
    pods = await world.kubectl.get("pods", "--selector", f"app={SERVICE}")
    return {pod["metadata"]["uid"] for pod in pods["items"]}
