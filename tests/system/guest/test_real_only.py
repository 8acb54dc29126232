"""What only a real kernel shows: containers, modules that are being unloaded, a whole swap."""

import asyncio

from libs.contracts.reports import Outcome
from libs.host import driver_files, holders, modules
from libs.host.linux import InUse, Unloaded
from libs.host.tree import Tree
from libs.testing.guest import actions, containers, processes
from libs.testing.guest.guest import Guest
from libs.testing.machines.kernel import cgroup_of
from tests.system.guest import swaps
from tests.unit.host.kernel_suite import CONTAINER, CONTROL, POD, in_use

HOST = Tree("/")
CGROUP = cgroup_of(POD, CONTAINER)
BUSY = "Device or resource busy"


async def test_a_module_that_is_being_unloaded_is_in_use(guest: Guest) -> None:
    await guest.call(actions.load_driver, exit_ms=1000)
    for name in ("nvidia_modeset", "nvidia_uvm"):
        assert await guest.call(actions.unload, name) == Unloaded()
    both = await guest.call(actions.unload_twice, "nvidia")
    assert both == [InUse(f"delete_module nvidia: {BUSY}"), Unloaded()]


async def test_a_holder_in_a_container_is_found_by_the_path_of_its_device_there(
    guest: Guest,
) -> None:
    await guest.call(actions.load_driver)
    pid = await guest.call(containers.start_with_devices, "train.py", cgroup=CGROUP)
    assert await guest.call(processes.open_devices, pid, ("/dev/nvidia1", CONTROL))
    (holder,) = await guest.call(holders.holders, HOST)
    assert (holder.pid, holder.comm) == (pid, "train.py")
    assert holder.devices == ("/dev/nvidia1", CONTROL)
    assert (holder.pod_uid, holder.container_id) == (POD, CONTAINER)
    assert await guest.call(actions.unload, "nvidia_uvm") == Unloaded()
    assert await guest.call(actions.unload, "nvidia") == in_use("nvidia")


async def test_an_agent_in_its_container_finds_the_same_holders(guest: Guest) -> None:
    await guest.call(actions.load_driver)
    pids = [
        await guest.call(containers.start_with_devices, "a", cgroup=CGROUP),
        await guest.call(processes.start, "b"),
    ]
    for pid in pids:
        assert await guest.call(processes.open_devices, pid, (CONTROL,))
    found = await guest.call(holders.holders, HOST)
    assert [each.comm for each in found] == ["a", "b"]
    host = Tree(containers.HOST)
    assert await guest.call(containers.in_agent, holders.holders, host) == found


async def test_a_device_file_that_was_removed_still_names_its_holder(guest: Guest) -> None:
    await guest.call(actions.load_driver)
    pid = await guest.call(processes.start, "python3")
    assert await guest.call(processes.open_devices, pid, (CONTROL,))
    await guest.call(Tree.remove, HOST, CONTROL)
    (holder,) = await guest.call(holders.holders, HOST)
    assert holder.devices == (f"{CONTROL} (deleted)",)


async def test_a_child_process_holds_what_its_parent_has_opened(guest: Guest) -> None:
    await guest.call(actions.load_driver)
    parent = await guest.call(processes.start, "parent")
    assert await guest.call(processes.open_devices, parent, (CONTROL,))
    child = await guest.call(processes.fork, parent)
    await guest.call(processes.close, parent)
    assert [each.pid for each in await guest.call(holders.holders, HOST)] == [child]
    await guest.call(actions.unload, "nvidia_uvm")
    await guest.call(actions.unload, "nvidia_modeset")
    assert await guest.call(actions.unload, "nvidia") == in_use("nvidia")


async def test_a_mapped_device_keeps_its_module_loaded_and_names_no_holder(guest: Guest) -> None:
    await guest.call(actions.load_driver)
    pid = await guest.call(processes.start, "python3")
    await guest.call(processes.map_device, pid, "/dev/nvidia0")
    for name in ("nvidia_modeset", "nvidia_uvm"):
        assert await guest.call(actions.unload, name) == Unloaded()
    assert await guest.call(actions.unload, "nvidia") == in_use("nvidia")
    assert await guest.call(holders.holders, HOST) == ()


async def test_an_agent_unmounts_the_root_of_a_driver_for_the_whole_machine(guest: Guest) -> None:
    await guest.call(containers.start_driver, "nvidia-driver")
    root = driver_files.ROOT
    mounted = await guest.call(actions.mounts)
    assert {root, f"{root}/proc"} <= set(mounted)
    problem = await guest.call(
        containers.in_agent, actions.unmount_below, root, root=containers.HOST
    )
    assert problem is None
    assert [path for path in await guest.call(actions.mounts) if path.startswith(root)] == []


async def test_a_mount_in_which_a_process_works_is_removed(guest: Guest) -> None:
    await guest.call(actions.mount, driver_files.ROOT)
    await guest.call(processes.start_in, driver_files.ROOT)
    assert await guest.call(actions.unmount_below, driver_files.ROOT) is None
    assert driver_files.ROOT not in await guest.call(actions.mounts)


async def test_a_swap_names_the_holder_of_the_driver_and_leaves_it_loaded(guest: Guest) -> None:
    await guest.call(actions.load_driver)
    pid = await guest.call(processes.start, "train.py", cgroup=CGROUP)
    assert await guest.call(processes.open_devices, pid, (CONTROL, "/dev/nvidia-uvm"))
    result = await guest.call(swaps.swap_until, 3.0)
    assert (result.outcome, result.code) == (Outcome.FAILED, "busy")
    assert result.message == (
        "delete_module nvidia_uvm: Resource temporarily unavailable;"
        f" the devices are open in train.py (pid {pid}, pod {POD})"
    )
    assert {"nvidia", "nvidia_uvm"} <= set(await guest.call(modules.loaded, HOST))


async def test_a_swap_replaces_a_driver_that_left_its_root_mounted(guest: Guest) -> None:
    await guest.call(actions.load_driver)
    before = await guest.call(modules.driver_loaded_at, HOST)
    await guest.call(actions.mount, driver_files.ROOT)
    await asyncio.sleep(1.0)
    result = await guest.call(swaps.swap_until, 60.0)
    assert (result.outcome, result.message) == (Outcome.DONE, "driver 580.95.05 is loaded")
    assert driver_files.ROOT not in await guest.call(actions.mounts)
    after = await guest.call(modules.driver_loaded_at, HOST)
    assert after > before
    # The agent has read the time of loading, so that the kernel keeps it.
    await guest.call(actions.drop_caches)
    assert await guest.call(modules.driver_loaded_at, HOST) == after


async def test_the_kernel_forgets_when_a_driver_was_loaded_unless_it_is_to_keep_it(
    guest: Guest,
) -> None:
    await guest.call(actions.load_driver)
    first = await guest.call(modules.driver_loaded_at, HOST)
    await asyncio.sleep(0.1)
    await guest.call(actions.drop_caches)
    second = await guest.call(modules.driver_loaded_at, HOST)
    assert second > first
    await guest.call(modules.keep_load_time, HOST)
    await asyncio.sleep(0.1)
    await guest.call(actions.drop_caches)
    assert await guest.call(modules.driver_loaded_at, HOST) == second
    assert await guest.call(modules.driver_loaded_at, HOST) == second
    for name in modules.UNLOAD_ORDER:
        await guest.call(actions.unload, name)
    await guest.call(modules.keep_load_time, HOST)
    assert await guest.call(modules.driver_loaded_at, HOST) == 0.0
