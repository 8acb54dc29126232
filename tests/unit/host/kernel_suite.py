"""The behaviour of every implementation of a machine's kernel, as agents see it."""

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from libs.host import driver_files, holders, modules, system
from libs.host.linux import InUse, NotLoaded, Unloaded, UnloadResult
from libs.host.tree import Tree

P = ParamSpec("P")
T = TypeVar("T")

CONTROL, UVM, MODESET = "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset"
POD = "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
CONTAINER = "5e" * 32


class KernelFixture(Protocol):
    """A machine with two GPUs whose driver a test can control; none is loaded at first."""

    gpus: Sequence[str]
    """The PCI addresses of its GPUs."""
    version: str
    """That of the driver."""

    async def read(
        self, function: Callable[Concatenate[Tree, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function with the machine's files."""
        ...

    async def unload(self, module: str) -> UnloadResult: ...

    async def unmount_below(self, path: str) -> str | None: ...

    async def load_driver(self) -> None:
        """Load nvidia, nvidia_uvm and nvidia_modeset; their device files are there afterwards."""
        ...

    async def start(self, comm: str, *, pod_uid: str = "", container_id: str = "") -> int:
        """Start a process of a container, or of the machine itself; return its pid."""
        ...

    async def open(self, pid: int, *devices: str) -> bool:
        """Let a process open devices; return False if it cannot."""
        ...

    async def close(self, pid: int) -> None:
        """Let a process close all devices."""
        ...

    async def end(self, pid: int) -> None:
        """Kill a process."""
        ...

    async def mount(self, path: str) -> None:
        """Mount an empty file system."""
        ...

    async def reboot(self) -> None: ...

    async def now(self) -> float:
        """Return the machine's time, in unix seconds."""
        ...

    async def wait(self, seconds: float) -> None:
        """Let the machine's time pass."""
        ...


def in_use(module: str) -> InUse:
    return InUse(f"delete_module {module}: Resource temporarily unavailable")


class DriverSuite:
    """What a driver shows without a GPU that works: NVIDIA's own modules do as well."""

    async def test_modules_unload_only_in_order_of_dependency(self, kernel: KernelFixture) -> None:
        await kernel.load_driver()
        assert await kernel.unload("nvidia") == in_use("nvidia")
        assert await kernel.unload("gdrdrv") == NotLoaded()
        assert await kernel.unload("nvidia_modeset") == Unloaded()
        assert await kernel.unload("nvidia") == in_use("nvidia")
        assert await kernel.unload("nvidia_uvm") == Unloaded()
        assert await kernel.unload("nvidia") == Unloaded()
        assert await kernel.unload("nvidia") == NotLoaded()

    async def test_the_list_of_modules_names_versions_and_users(
        self, kernel: KernelFixture
    ) -> None:
        await kernel.load_driver()
        loaded = await driver_modules(kernel)
        assert loaded == {
            "nvidia": (2, ("nvidia_modeset", "nvidia_uvm")),
            "nvidia_uvm": (0, ()),
            "nvidia_modeset": (0, ()),
        }
        found = await kernel.read(modules.loaded)
        assert {found[name].version for name in loaded} == {kernel.version}

    async def test_of_an_unloaded_driver_only_the_device_files_are_left(
        self, kernel: KernelFixture
    ) -> None:
        await kernel.load_driver()
        drivers = [f"/sys/bus/pci/devices/{gpu}/driver" for gpu in kernel.gpus]
        for path in drivers:
            target = await kernel.read(Tree.link, path)
            assert target is not None
            assert target.rpartition("/")[2] == "nvidia"
        await unload_all(kernel)
        assert await driver_modules(kernel) == {}
        assert [await kernel.read(Tree.link, path) for path in drivers] == [None, None]
        for name in ("nvidia", "nvidia_uvm", "nvidia_modeset"):
            assert not await kernel.read(Tree.exists, f"/sys/module/{name}")
        for path in ("/dev/nvidia0", "/dev/nvidia1", CONTROL, UVM, MODESET):
            assert await kernel.read(Tree.exists, path)
            assert not await kernel.open(await kernel.start("python3"), path)

    async def test_an_open_device_keeps_its_module_loaded(self, kernel: KernelFixture) -> None:
        await kernel.load_driver()
        pid = await kernel.start("python3")
        assert await kernel.open(pid, CONTROL, UVM)
        before = await driver_modules(kernel)
        assert {name: references > len(users) for name, (references, users) in before.items()} == {
            "nvidia": True,
            "nvidia_uvm": True,
            "nvidia_modeset": False,
        }
        references = str(before["nvidia"][0])
        assert await kernel.read(Tree.word, "/sys/module/nvidia/refcnt") == references
        assert [await kernel.unload(name) for name in ("nvidia_uvm", "nvidia")] == [
            in_use("nvidia_uvm"),
            in_use("nvidia"),
        ]
        assert await driver_modules(kernel) == before
        await kernel.close(pid)
        assert await kernel.read(holders.holders) == ()
        assert await unload_all(kernel) == [Unloaded()] * 3

    async def test_a_display_keeps_its_module_loaded(self, kernel: KernelFixture) -> None:
        await kernel.load_driver()
        pid = await kernel.start("Xorg")
        assert await kernel.open(pid, MODESET)
        assert await unload_all(kernel) == [in_use("nvidia_modeset"), Unloaded(), in_use("nvidia")]
        await kernel.end(pid)
        assert await kernel.unload("nvidia_modeset") == Unloaded()

    async def test_a_holder_is_named_with_its_pod_and_container(
        self, kernel: KernelFixture
    ) -> None:
        await kernel.load_driver()
        name = "a-very-long-process-name"
        pid = await kernel.start(name, pod_uid=POD, container_id=CONTAINER)
        assert await kernel.read(holders.holders) == ()
        assert await kernel.open(pid, CONTROL, UVM, UVM)
        (holder,) = await kernel.read(holders.holders)
        assert (holder.pid, holder.comm) == (pid, "a-very-long-pro")
        assert holder.devices == (UVM, CONTROL)
        assert (holder.pod_uid, holder.container_id) == (POD, CONTAINER)
        assert await kernel.read(holders.containers, POD) == (CONTAINER,)

    async def test_holders_outside_of_pods_are_in_the_order_of_their_pids(
        self, kernel: KernelFixture
    ) -> None:
        await kernel.load_driver()
        pids = [await kernel.start(comm) for comm in ("Xorg", "nv-hostengine")]
        for pid in reversed(pids):
            assert await kernel.open(pid, CONTROL)
        found = await kernel.read(holders.holders)
        assert [(each.pid, each.comm) for each in found] == [
            (pids[0], "Xorg"),
            (pids[1], "nv-hostengine"),
        ]
        assert {(each.pod_uid, each.container_id) for each in found} == {("", "")}

    async def test_a_killed_process_releases_its_devices(self, kernel: KernelFixture) -> None:
        await kernel.load_driver()
        pid = await kernel.start("python3", pod_uid=POD, container_id=CONTAINER)
        assert await kernel.open(pid, CONTROL, UVM)
        await kernel.end(pid)
        assert await kernel.read(holders.holders) == ()
        assert await kernel.read(holders.containers, POD) == ()
        assert await unload_all(kernel) == [Unloaded()] * 3

    async def test_the_time_of_loading_stays_until_the_driver_is_loaded_again(
        self, kernel: KernelFixture
    ) -> None:
        assert await kernel.read(modules.driver_loaded_at) == 0.0
        before = await kernel.now()
        await kernel.load_driver()
        first = await kernel.read(modules.driver_loaded_at)
        assert before - 0.1 <= first <= await kernel.now()
        await kernel.wait(2.0)
        assert await kernel.read(modules.driver_loaded_at) == first
        await unload_all(kernel)
        assert await kernel.read(modules.driver_loaded_at) == 0.0
        await kernel.load_driver()
        assert await kernel.read(modules.driver_loaded_at) >= first + 2.0

    async def test_a_reboot_leaves_nothing_of_the_memory(self, kernel: KernelFixture) -> None:
        await kernel.load_driver()
        pid = await kernel.start("python3", pod_uid=POD, container_id=CONTAINER)
        assert await kernel.open(pid, CONTROL)
        await kernel.mount(driver_files.ROOT)
        await kernel.read(Tree.write, driver_files.READY, b"")
        before = await kernel.read(system.boot_id)
        await kernel.reboot()
        after = await kernel.read(system.boot_id)
        assert before
        assert after
        assert before != after
        assert await driver_modules(kernel) == {}
        assert await kernel.read(holders.holders) == ()
        assert await kernel.read(holders.containers, POD) == ()
        assert not await kernel.read(Tree.exists, CONTROL)
        assert not await kernel.read(Tree.exists, "/run/nvidia")


class KernelSuite(DriverSuite):
    """That, what needs the device file of a GPU that works, and what needs no driver."""

    async def test_an_open_gpu_keeps_its_module_loaded_and_names_its_holder(
        self, kernel: KernelFixture
    ) -> None:
        await kernel.load_driver()
        pid = await kernel.start("python3", pod_uid=POD, container_id=CONTAINER)
        assert await kernel.open(pid, CONTROL, "/dev/nvidia0", "/dev/nvidia0")
        (holder,) = await kernel.read(holders.holders)
        assert (holder.pid, holder.devices) == (pid, ("/dev/nvidia0", CONTROL))
        assert await unload_all(kernel) == [Unloaded(), Unloaded(), in_use("nvidia")]
        await kernel.end(pid)
        assert await kernel.unload("nvidia") == Unloaded()

    async def test_a_container_starts_with_its_first_process(self, kernel: KernelFixture) -> None:
        before = await kernel.now()
        await kernel.start("sh", pod_uid=POD, container_id=CONTAINER)
        after = await kernel.now()
        await kernel.wait(2.0)
        await kernel.start("python3", pod_uid=POD, container_id=CONTAINER)
        started = (await kernel.read(holders.container_starts, POD))[CONTAINER]
        # The kernel names the time of its own start in whole seconds.
        assert before - 1.1 <= started <= after + 0.1

    async def test_all_mounts_at_and_below_a_path_are_removed(self, kernel: KernelFixture) -> None:
        root = driver_files.ROOT
        below, beside = f"{root}/usr/src", f"{root}-of-another"
        for path in (root, below, beside):
            await kernel.mount(path)
            await kernel.read(Tree.write, f"{path}/file", b"")
        assert await kernel.unmount_below(root) is None
        assert await kernel.read(Tree.names, root) == ()
        assert await kernel.read(Tree.exists, f"{beside}/file")
        assert await kernel.unmount_below(root) is None
        assert await kernel.unmount_below("/run/nvidia/missing") is None

    async def test_a_path_that_is_mounted_twice_is_unmounted(self, kernel: KernelFixture) -> None:
        for _ in range(2):
            await kernel.mount(driver_files.ROOT)
            await kernel.read(Tree.write, f"{driver_files.ROOT}/file", b"")
        assert await kernel.unmount_below(driver_files.ROOT) is None
        assert await kernel.read(Tree.names, driver_files.ROOT) == ()


async def driver_modules(kernel: KernelFixture) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return references and users of the driver's modules."""
    loaded = await kernel.read(modules.loaded)
    return {
        name: (loaded[name].references, loaded[name].users)
        for name in modules.UNLOAD_ORDER
        if name in loaded
    }


async def unload_all(kernel: KernelFixture) -> list[UnloadResult]:
    """Unload the driver's modules in order; return the results for those that were loaded."""
    results = [await kernel.unload(name) for name in modules.UNLOAD_ORDER]
    return [result for result in results if result != NotLoaded()]
