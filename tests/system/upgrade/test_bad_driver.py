"""A driver that does not work harms one real node, and a person gets it going again."""

import time
from collections.abc import Callable
from typing import Final

import pytest

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.testing.image.driver_settings import DriverSettings
from tests.summary import FIGURE
from tests.system.upgrade.audit import assert_audit_passes, observe_driverless
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.world import NEW, OLD, World

pytestmark = SOAK_ONLY

RUNS_WITHIN, HALTED_WITHIN = 240.0, 400.0
LIVES: Final = 20.0
"""Longer than a validation takes."""
FAILED = UpgradeState.UPGRADE_FAILED
CRASHED = "it exited with code 137, and its log ends: "
FORMAT = "insmod: ERROR: could not insert module nvidia.ko: Invalid module format"


async def test_a_driver_that_crashes_after_its_proof_is_named_until_a_person_retries(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer:
        await world.until_all_run(OLD, within=RUNS_WITHIN)
        for machine in world.machines:
            machine.set_driver(NEW, DriverSettings(lives_seconds=LIVES))
        began = time.monotonic()
        await world.apply_policy(NEW)
        said: dict[str, str] = {}

        async def is_named() -> bool:
            for machine in world.machines:
                answer = await world.why(machine.node.name)
                if answer and answer.wait and answer.wait.code == WaitCode.DRIVER_RESTARTING:
                    said[machine.node.name] = answer.wait.detail
            return len(said) == len(world.machines)

        await world.until(is_named, within=HALTED_WITHIN)
        seconds = time.monotonic() - began
        record_property(
            FIGURE, f"drivers crash after their proof: named in {seconds:.0f} s: {said}"
        )
        for machine in world.machines:
            machine.set_driver(NEW, DriverSettings())
            await world.retry(machine.node.name)
        await world.until_all_run(NEW, within=RUNS_WITHIN)
        assert await world.cordoned() == []
        await assert_audit_passes(world, observer)


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (DriverSettings(failure=FORMAT), "Invalid module format"),
        (DriverSettings(loads="575.57.08"), "575.57.08"),
        (DriverSettings(hangs=True), "driver-start: "),
        (DriverSettings(lives_seconds=0.01), CRASHED),
    ],
    ids=[
        "it does not load",
        "it loads other modules",
        "its installation never ends",
        "it crashes three times",
    ],
)
async def test_a_bad_driver_harms_one_node(
    world: World, bad: DriverSettings, cause: str, record_property: Callable[[str, object], None]
) -> None:
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer:
        await world.until_all_run(OLD, within=RUNS_WITHIN)
        for machine in world.machines:
            machine.set_driver(NEW, bad)
        began = time.monotonic()
        await world.apply_policy(NEW)
        target = await world.until_halted(within=HALTED_WITHIN)
        seconds = time.monotonic() - began
        (failed,) = [name for name, state in (await world.states()).items() if state == FAILED]
        said = await world.until_waiting(failed, WaitCode.FAILED, cause, within=30.0)
        record_property(FIGURE, f"a bad driver: halted after {seconds:.0f} s: {said}")
        assert await world.cordoned() == [failed]
        others = [each for each in world.machines if each.node.name != failed]
        assert [each.kernel.version() for each in others] == [OLD]
        for machine in world.machines:
            machine.set_driver(NEW, DriverSettings())
        await world.release(target, failed)
        await world.until_all_run(NEW, within=RUNS_WITHIN)
        assert await world.cordoned() == []
        await assert_audit_passes(world, observer)
