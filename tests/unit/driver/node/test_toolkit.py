"""The CDI specs follow driver, GPUs and files, and are gone while an op changes them."""

import shutil
from collections.abc import Sequence
from unittest import mock

from msgspec.structs import replace

from libs.contracts.commands import Swap
from libs.contracts.facts import Cdi, Facts, Gpu
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.contracts.reports import Outcome, Result
from libs.host import driver_files, gate
from libs.host.cdi import published
from libs.host.cdi.extras import GDRCOPY
from libs.host.cdi.spec import Edits, common_digest, decode
from libs.host.gate import GateAnswer
from libs.host.gpus.port import GpusUnavailable
from libs.host.linux import UnloadResult
from libs.host.tree import Tree
from services.driver.node import toolkit
from tests.builders.fake_machine import VERSION, gpu
from tests.builders.machine_files import put
from tests.unit.driver.node.world import World, in_world
from tests.unit.host.cdi.drivers import BINARIES, add_devices, install

OLD, NEW = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
GPUS = frozenset(("0", "1", "GPU-0", "GPU-1", "all"))
FIRST = frozenset(("0", "GPU-0", "all"))
ALL = frozenset(("all",))
UNKNOWN = Gpu(uuid="", index=1, minor=-1, pci="", name="", memory_mib=0)
REPORTED = Cdi(devices=("GPU-0", "GPU-1"))


def start_driver(world: World, version: str = VERSION) -> None:
    """Run a driver container: its root, device files, modules and NVML."""
    machine = world.machine
    install(machine.root, driver_files.ROOT, LIBRARIES, version=version, binaries=BINARIES[-1:])
    add_devices(machine.root, "nvidia4", "nvidia5")
    machine.load_driver(version)
    world.driver.set_version(version)


def devices(world: World) -> frozenset[str]:
    return published.devices(world.machine.tree)


def last(world: World) -> Cdi | None:
    """Return what was reported last, but for the digest."""
    facts = world.reported(Facts)
    return without_digest(facts[-1]) if facts else None


def without_digest(facts: Facts) -> Cdi | None:
    return facts.cdi and replace(facts.cdi, digest="")


def digest(world: World) -> str:
    cdi = world.reported(Facts)[-1].cdi
    return cdi.digest if cdi is not None else ""


def why(world: World) -> str:
    return (last(world) or Cdi()).why


def mounted(world: World) -> set[str]:
    """Return the versions of the libraries that the spec mounts."""
    data = world.machine.tree.data(published.GPU_FILE)
    assert data is not None
    paths = (each.host_path for each in decode(data).container_edits.mounts)
    return {path.partition(".so.")[2] for path in paths if ".so." in path}


def count_opens(world: World) -> list[float]:
    opens: list[float] = []

    def opened() -> None:
        if not world.driver.held:
            opens.append(world.clock.monotonic())

    world.driver.on_open = opened
    return opens


@in_world
async def test_specs_appear_with_the_driver_and_nvml_is_read_once(world: World) -> None:
    opens = count_opens(world)
    async with world.agent():
        await world.until(lambda: last(world))
        assert last(world) == Cdi(why="no NVIDIA driver is loaded")
        await world.clock.sleep(30)
        assert (devices(world), opens) == (frozenset(), [])
        start_driver(world)
        await world.until(lambda: last(world) == REPORTED)
        assert devices(world) == GPUS
        assert world.machine.tree.exists(published.MANAGEMENT_FILE)
        await world.clock.sleep(90)
        assert (len(opens), world.driver.held) == (1, 0)
    assert devices(world) == GPUS
    async with world.agent():
        await world.clock.sleep(30)
    assert (devices(world), len(opens)) == (GPUS, 2)


@in_world
async def test_a_driver_that_loads_during_an_attempt_is_noticed_at_the_next_look(
    world: World,
) -> None:
    look = toolkit.traces
    looks: list[toolkit.Traces] = []

    def look_then_load(tree: Tree, roots: Sequence[str]) -> toolkit.Traces:
        looks.append(look(tree, roots))
        if len(looks) == 1:
            start_driver(world)
        return looks[-1]

    with mock.patch.object(toolkit, "traces", look_then_load):
        async with world.agent():
            await world.until(lambda: last(world))
            assert last(world) == Cdi(why="no NVIDIA driver is loaded")
            await world.clock.sleep(toolkit.INTERVAL + 1.0)
            assert devices(world) == GPUS


@in_world
async def test_a_swap_withdraws_specs_before_it_unloads(world: World) -> None:
    start_driver(world, "550.54")
    machine = world.machine
    gate.put_answer(machine.tree, GateAnswer(pod_uid=OLD, label="d-1", at=1.0))
    opens = count_opens(world)
    at_unload: list[frozenset[str]] = []
    unload = machine.unload

    def watched(module: str) -> UnloadResult:
        at_unload.append(devices(world))
        return unload(module)

    machine.unload = watched
    async with world.agent():
        await world.until(lambda: devices(world) == GPUS)
        assert mounted(world) == {"550.54"}
        before = len(opens)
        order = await world.send_command(Swap(label="d-2", old_pod_uid=OLD))
        await world.until(lambda: "gate" in world.phases(order))
        assert machine.unloaded == ["nvidia_uvm", "nvidia"]
        assert set(at_unload) == {frozenset()}
        shutil.rmtree(machine.root / driver_files.ROOT.lstrip("/"))
        machine.add_gate_request(NEW, "d-2", at=world.clock.now())
        await world.until(lambda: "driver-start" in world.phases(order))
        await world.clock.sleep(30)
        assert last(world) == Cdi(why="the driver or the GPUs are being changed")
        assert len(opens) == before
        start_driver(world)
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
    assert (devices(world), mounted(world)) == (GPUS, {VERSION})
    kinds = [type(each) for each in world.reports]
    is_current = [
        isinstance(each, Facts) and without_digest(each) == REPORTED for each in world.reports
    ]
    assert is_current.index(True, kinds.index(Facts)) < kinds.index(Result)


@in_world
async def test_specs_are_made_again_after_a_swap_that_failed(world: World) -> None:
    start_driver(world)
    world.machine.add_process(4711, OLD, "/dev/nvidia4", comm="train.py")
    async with world.agent():
        await world.until(lambda: devices(world) == GPUS)
        assert (await world.carry_out(Swap(label="d-2"), deadline=20.0)).code == "busy"
    assert devices(world) == GPUS


@in_world
async def test_a_process_that_was_killed_in_a_swap_leaves_no_specs(world: World) -> None:
    start_driver(world)
    world.machine.add_process(4711, OLD, "/dev/nvidia4", comm="train.py")
    async with world.agent():
        await world.until(lambda: devices(world) == GPUS)
        order = await world.send_command(Swap(label="d-2"))
        await world.until(lambda: "unload" in world.phases(order))
    assert devices(world) == frozenset()
    async with world.agent():
        assert (await world.wait_for_result(order)).code == "busy"
    assert devices(world) == GPUS


@in_world
async def test_files_that_vanish_take_the_specs_along(world: World) -> None:
    start_driver(world)
    async with world.agent():
        await world.until(lambda: devices(world) == GPUS)
        shutil.rmtree(world.machine.root / driver_files.ROOT.lstrip("/"))
        await world.clock.sleep(toolkit.INTERVAL)
        assert not world.machine.tree.exists(published.GPU_FILE)
        assert not world.machine.tree.exists(published.MANAGEMENT_FILE)
        await world.until(lambda: "libcuda.so.570.86.15 was not found" in why(world))


@in_world
async def test_other_device_files_and_instances_are_noticed(world: World) -> None:
    start_driver(world)
    opens = count_opens(world)
    async with world.agent():
        await world.until(lambda: devices(world) == GPUS)
        (world.machine.root / "dev/nvidia5").unlink()
        await world.until(lambda: devices(world) == FIRST)
        await world.until(lambda: last(world) != REPORTED)
        problem = "GPU 1 (GPU-1) has no device file /dev/nvidia5"
        assert last(world) == Cdi(devices=("GPU-0",), why=problem)
        put(world.machine.root, "/proc/driver/nvidia/capabilities/gpu4/mig/gi1/ci0/access", "")
        await world.until(lambda: len(opens) == 3)
        (world.machine.root / published.GPU_FILE.lstrip("/")).unlink()
        await world.until(lambda: devices(world) == FIRST)


@in_world
async def test_the_digest_is_of_what_every_container_gets(world: World) -> None:
    async with world.agent():
        await world.until(lambda: last(world))
        assert digest(world) == ""
        start_driver(world)
        await world.until(lambda: last(world) == REPORTED)
        data = world.machine.tree.data(published.GPU_FILE)
        assert data is not None
        spec = decode(data)
        assert digest(world) == common_digest(spec) != ""
        (world.machine.root / "dev/nvidia5").unlink()
        await world.until(lambda: last(world) not in (None, REPORTED))
        assert digest(world) == common_digest(spec)  # a GPU less changes nothing for the others
        for edits in (
            replace(spec.container_edits, mounts=spec.container_edits.mounts[1:]),
            replace(spec.container_edits, env=("A=b",)),
            Edits(),
        ):
            assert common_digest(replace(spec, container_edits=edits)) != digest(world)


@in_world
async def test_specs_stay_while_nvml_fails_and_the_driver_is_the_same(world: World) -> None:
    start_driver(world)
    opens = count_opens(world)
    error = GpusUnavailable(GpuProblem.NO_ANSWER)

    def fail() -> None:
        opens.append(world.clock.monotonic())
        raise error

    async with world.agent():
        await world.until(lambda: last(world) == REPORTED)
        world.driver.on_open = fail
        add_devices(world.machine.root, "nvidia6")
        await world.until(lambda: last(world) != REPORTED)
        assert last(world) == Cdi(devices=REPORTED.devices, why=str(error))
        assert devices(world) == GPUS
        tried = len(opens)
        await world.clock.sleep(3 * toolkit.RETRY)
        assert len(opens) - tried in (2, 3)
        world.driver.on_open = lambda: None
        await world.until(lambda: last(world) == REPORTED)
        world.driver.on_open = fail
        world.machine.set_modules("nvidia", version="550.54")
        shutil.rmtree(world.machine.root / driver_files.ROOT.lstrip("/"))
        install(world.machine.root, driver_files.ROOT, LIBRARIES, version="550.54")
        await world.until(lambda: devices(world) == frozenset())


@in_world
async def test_a_gpu_that_cannot_be_described_leaves_the_specs_as_they_are(world: World) -> None:
    start_driver(world)
    async with world.agent():
        await world.until(lambda: last(world) == REPORTED)
        world.driver.gpus.change([gpu(0), replace(UNKNOWN, problem=GpuProblem.FAILED)])
        add_devices(world.machine.root, "nvidia6")
        await world.until(lambda: last(world) != REPORTED)
        assert (devices(world), REMEDIES[GpuProblem.FAILED] in why(world)) == (GPUS, True)
        world.driver.gpus.change([gpu(0), gpu(1)])
        await world.clock.sleep(toolkit.RETRY + toolkit.INTERVAL)
        assert last(world) == REPORTED


@in_world
async def test_a_gpu_that_can_be_described_later_is_in_the_specs_soon_after(world: World) -> None:
    start_driver(world)
    world.driver.gpus.change([gpu(0), replace(UNKNOWN, problem=GpuProblem.HUNG)])
    async with world.agent():
        await world.until(lambda: devices(world) == FIRST)
        world.driver.gpus.change([gpu(0), gpu(1)])
        await world.clock.sleep(toolkit.RETRY + toolkit.INTERVAL)
        assert last(world) == REPORTED


@in_world
async def test_another_file_that_defines_gpus_is_named(world: World) -> None:
    start_driver(world)
    put(world.machine.root, "/var/run/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n")
    async with world.agent():
        await world.until(lambda: "/var/run/cdi/nvidia.yaml defines" in why(world))
        assert (devices(world), (last(world) or REPORTED).devices) == (frozenset(), ())
        world.machine.tree.remove("/var/run/cdi/nvidia.yaml")
        await world.until(lambda: last(world) == REPORTED)
        assert devices(world) == GPUS


@in_world
async def test_without_the_toolkit_there_are_no_specs(world: World) -> None:
    start_driver(world)
    async with world.agent():
        await world.until(lambda: devices(world) == GPUS)
    opens = count_opens(world)
    world.settings["toolkit"] = False
    async with world.agent():
        await world.until(lambda: not world.machine.tree.exists(published.GPU_FILE))
        await world.until(lambda: last(world) is None)
    assert opens == []


@in_world
async def test_specs_beside_gpus_follow_their_modules(world: World) -> None:
    start_driver(world)
    tree, root = world.machine.tree, world.machine.root
    put(root, "/dev/gdrdrv", "")
    async with world.agent():
        await world.until(lambda: devices(world) == GPUS)
        assert published.devices_of(tree, GDRCOPY) == frozenset()
        put(root, "/sys/module/gdrdrv/refcnt", "0")
        await world.until(lambda: published.devices_of(tree, GDRCOPY) == ALL)
        shutil.rmtree(root / "sys/module/gdrdrv")
        await world.until(lambda: not tree.exists(published.file_of(GDRCOPY)))
        put(root, "/sys/module/gdrdrv/refcnt", "0")
        await world.until(lambda: published.devices_of(tree, GDRCOPY) == ALL)
    world.settings["toolkit"] = False
    async with world.agent():
        await world.until(lambda: not tree.exists(published.file_of(GDRCOPY)))


@in_world
async def test_device_files_are_made_as_soon_as_the_driver_is_loaded(world: World) -> None:
    """A driver container makes them in its own /dev alone; agents open those of the machine."""
    world.settings["toolkit"] = False
    root = world.machine.root

    def make_device(_tree: Tree, path: str, *_numbers: int, mode: int) -> None:
        put(root, path, f"{mode:o}")

    with mock.patch.object(Tree, "make_device", make_device):
        async with world.agent():
            await world.clock.sleep(2 * toolkit.INTERVAL)
            assert not (root / "dev/nvidiactl").exists()
            put(root, "/proc/devices", "Character devices:\n195 nvidia\n511 nvidia-uvm\n")
            await world.clock.sleep(2 * toolkit.INTERVAL)
            names = {path.name for path in (root / "dev").iterdir()}
            assert {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} <= names


@in_world
async def test_specs_are_made_where_device_files_cannot_be(world: World) -> None:
    def make_device(_tree: Tree, path: str, *_numbers: int, mode: int) -> None:
        raise PermissionError(f"{path} {mode}")

    put(world.machine.root, "/proc/devices", "Character devices:\n195 nvidia-frontend\n")
    start_driver(world)
    (world.machine.root / "dev/nvidiactl").unlink()
    add_devices(world.machine.root / driver_files.ROOT.lstrip("/"), "nvidia4", "nvidia5")
    with mock.patch.object(Tree, "make_device", make_device):
        async with world.agent():
            await world.until(lambda: devices(world) == GPUS)
