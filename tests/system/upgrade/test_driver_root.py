"""The root of the old driver, mounted at /run/nvidia/driver, when it is to be removed."""

import time
from collections.abc import Callable

from libs.contracts.events import EventBody, StepEvent
from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.host.driver_files import ROOT
from libs.testing.image.driver_settings import DriverSettings
from tests.summary import FIGURE
from tests.system.upgrade.audit import assert_audit_passes, observe_driverless
from tests.system.upgrade.bus_events import new_events
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.world import NEW, OLD, World

pytestmark = SOAK_ONLY

RUNS_WITHIN, HALTED_WITHIN = 300.0, 400.0
ENDS_AFTER = 8.0
FOLDER = ROOT.rpartition("/")[0]
STAYS = (
    f"cd {ROOT}; exec 3<usr/bin/nvidia-smi;"
    " setsid sleep 1000000 </dev/null >/dev/null 2>&1 & echo $!"
)
"""Runs a process whose folder is in the driver's root, and that has a file of it open."""


async def test_a_process_in_the_old_root_hinders_nothing_and_is_left_alone(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    for machine in world.machines:
        machine.set_driver(OLD, DriverSettings(leaves_modules=True))
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer:
        await world.until_all_run(OLD, within=RUNS_WITHIN)
        nodes = world.ground.nodes
        pids = [(await node.run("sh", "-c", STAYS)).strip() for node in nodes]
        holders = list(zip(nodes, pids, strict=True))
        for node, pid in holders:
            assert ROOT in await node.run("readlink", f"/proc/{pid}/cwd")
        began = time.monotonic()
        await world.apply_policy(NEW)
        await world.until_all_run(NEW, within=RUNS_WITHIN)
        seconds = time.monotonic() - began
        for node, pid in holders:
            assert await node.run("readlink", f"/proc/{pid}/cwd")
            await node.run("cat", f"/proc/{pid}/fd/3")
            mounts = await node.run("cat", "/proc/1/mountinfo")
            roots = [line for line in mounts.splitlines() if line.split()[4] == ROOT]
            assert len(roots) == 1, roots
            await node.run("kill", pid)
        record_property(FIGURE, f"upgrade of two nodes, old roots in use: {seconds:.0f} s")
        await assert_audit_passes(world, observer)


async def test_a_root_that_cannot_be_unmounted_fails_one_node_by_name(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    settings = DriverSettings(leaves_modules=True, end_seconds=ENDS_AFTER)
    for machine in world.machines:
        machine.set_driver(OLD, settings)
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer:
        await world.until_all_run(OLD, within=RUNS_WITHIN)
        began = time.monotonic()
        async with new_events(world) as events:
            await world.apply_policy(NEW)
            name = await events.first_node(is_started)
            node = world.machine(name).node
            await node.run("mount", "-t", "tmpfs", "cover", FOLDER)
            await node.run("mkdir", ROOT)
        target = await world.until_halted(within=HALTED_WITHIN)
        seconds = time.monotonic() - began
        said = await world.until_waiting(
            name,
            WaitCode.FAILED,
            "stale-root",
            f"umount /host{ROOT}",
            "mounted over it",
            within=30.0,
        )
        record_property(FIGURE, f"a root that is covered: halted after {seconds:.0f} s: {said}")
        assert await world.cordoned() == [name]
        assert f" {ROOT} " in await node.run("cat", "/proc/1/mountinfo")
        await node.run("umount", FOLDER)
        await world.release(target, name)
        await world.until_all_run(NEW, within=RUNS_WITHIN)
        assert await world.cordoned() == []
        await assert_audit_passes(world, observer)


def is_started(body: EventBody) -> bool:
    return isinstance(body, StepEvent) and body.after == UpgradeState.POD_RESTART_REQUIRED
