"""`undo` leaves a machine as it was before Sluice, byte for byte."""

import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from libs.host import driver_files, gate
from libs.host.cdi import published
from libs.host.gate import GateAnswer
from libs.host.runtimes import containerd
from libs.host.tree import Tree
from services.driver.node import undo
from services.driver.node.agent import DriverAgentSettings
from services.driver.node.runtime_steps import RuntimeSettings
from services.driver.node.undo import Undo
from services.validator.node import status_files
from services.validator.node.probe import CUDA_STEP, GPUS_STEP, PLUGIN_STEP, TOOLKIT_STEP
from tests.builders.fake_machine import VERSION
from tests.builders.machine_files import put
from tests.component.driver.node.memory_runtime import UNIT, MemoryRuntime
from tests.component.driver.node.test_runtime import READY, last, runtime
from tests.unit.driver.node.test_toolkit import start_driver
from tests.unit.driver.node.world import World, in_world

POD = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01"
STEPS = (GPUS_STEP, TOOLKIT_STEP, CUDA_STEP, PLUGIN_STEP)
UNDONE = DriverAgentSettings(node="a", toolkit=False).runtime


def files(root: Path) -> dict[str, object]:
    """Return what is below a root: mode, owner, and content or target; of no kernel's files."""
    found: dict[str, object] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [each for each in folders if Path(folder, each) not in _kernel(root)]
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            content = b"" if stat.S_ISDIR(status.st_mode) else _content(path)
            owner = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), status.st_uid)
            found[str(path.relative_to(root))] = (*owner, content)
    return found


def _kernel(root: Path) -> set[Path]:
    return {root / "proc", root / "sys", root / "dev"}


def _content(path: Path) -> bytes | str:
    return os.readlink(path) if path.is_symlink() else path.read_bytes()


@asynccontextmanager
async def undoing(world: World, settings: RuntimeSettings = UNDONE) -> AsyncGenerator[Undo]:
    """Run the role while entered."""
    running = Undo(machine=world.machine.machine, clock=world.clock, settings=settings)
    task = world.sim.loop.create_task(running.run())
    try:
        yield running
    finally:
        task.cancel()


def leave_traces(world: World) -> None:
    """Write what the other agents, the driver's pod and its kubelet leave."""
    tree = world.machine.tree
    for component in ("discovery", "driver", "plugin", "validator", "telemetry"):
        tree.write(f"/var/lib/sluice/{component}/journal", b"entries\n")
    tree.write("/var/lib/sluice/telemetry/health.json", b"{}")
    status_files.write(tree, STEPS, container_root=driver_files.ROOT)
    world.machine.add_gate_request(POD, "d1", at=1.0)
    gate.put_answer(tree, GateAnswer(pod_uid=POD, label="d1", at=2.0))
    for path in (driver_files.PID, driver_files.STATE, driver_files.READY):
        tree.write(path, b"1\n")
    for path in undo.EMPTY_FOLDERS:
        tree.make_folders(path)


def end_driver(world: World) -> None:
    """Let the driver's container unload its modules and unmount its root."""
    world.machine.set_modules()
    root = world.machine.root / driver_files.ROOT[1:]
    for folder, folders, names in os.walk(root, topdown=False):
        for name in names:
            Path(folder, name).unlink()
        for name in folders:
            path = Path(folder, name)
            path.unlink() if path.is_symlink() else path.rmdir()


async def used(world: World) -> tuple[dict[str, object], MemoryRuntime]:
    """Let Sluice run on a machine and end; return the machine's files before, and the runtime."""
    made = runtime(world)
    put(world.machine.root, "/run/nvidia/of-others", "kept")
    put(world.machine.root, "/run/cdi/of-others.json", "{}")
    (world.machine.root / "var/run").symlink_to("../run")
    before = files(world.machine.root)
    start_driver(world)
    async with world.agent():
        await world.until(lambda: last(world) == READY)
        await world.until(lambda: published.devices(world.machine.tree))
    leave_traces(world)
    end_driver(world)
    assert world.machine.tree.exists(containerd.DROP_IN)
    return before, made


@in_world
async def test_nothing_is_left(world: World) -> None:
    before, made = await used(world)
    assert made.restarts == [UNIT]
    async with undoing(world) as running:
        assert running.problem
        await world.until(lambda: not running.problem)
    assert files(world.machine.root) == before
    assert made.restarts == [UNIT, UNIT]
    assert made.status().handlers.isdisjoint(READY.handlers)


@in_world
async def test_a_machine_that_sluice_never_changed_stays_as_it_is(world: World) -> None:
    made = runtime(world)
    before = files(world.machine.root)
    async with undoing(world) as running:
        await world.until(lambda: not running.problem)
    assert (files(world.machine.root), made.restarts) == (before, [])


@in_world
async def test_pods_that_compute_keep_their_driver_and_their_runtime(world: World) -> None:
    """Files are taken back all the same; the runtime reads them when it starts again."""
    before, made = await used(world)
    world.machine.load_driver(VERSION)
    world.machine.add_process(40, POD, "/dev/nvidia-uvm")
    async with undoing(world) as running:
        await world.until(lambda: not running.problem)
    left = files(world.machine.root).keys() - before.keys()
    of_driver = {driver_files.PID, driver_files.STATE, driver_files.READY}
    assert {f"/{each}" for each in left} == {*of_driver, "/run/nvidia/validations"}
    assert made.restarts == [UNIT]


@in_world
async def test_what_cannot_be_undone_is_named_and_tried_again(world: World) -> None:
    before, _ = await used(world)
    log = world.machine.root / "var/lib/sluice/undo/list"
    kept = log.read_bytes()
    log.write_bytes(b"{}\n" + kept)
    async with undoing(world) as running:
        await world.until(lambda: "not readable" in running.problem)
        assert world.machine.tree.exists(containerd.DROP_IN)
        log.write_bytes(kept)
        await world.until(lambda: not running.problem)
    assert files(world.machine.root) == before


@in_world
async def test_a_killed_process_leaves_the_rest_to_the_next(world: World) -> None:
    before, _ = await used(world)
    undo.remove_specs(world.machine.tree)
    world.machine.tree.remove(f"{undo.RUN}/gate/asking/{POD}")
    async with undoing(world) as running:
        await world.until(lambda: not running.problem)
    assert files(world.machine.root) == before


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    put(tmp_path, "/proc/modules", "")
    put(tmp_path, "/etc/people/file", "kept")
    put(tmp_path, "/var/lib/sluice/driver/journal", "")
    (tmp_path / "var/lib/sluice/link").symlink_to("../../../etc/people")
    undo.remove_files(Tree(tmp_path))
    assert (tmp_path / "etc/people/file").read_text() == "kept"
    assert not (tmp_path / "var/lib/sluice").exists()


def test_names_of_status_files_are_those_of_the_validator() -> None:
    of_validator = (
        status_files.DRIVER,
        status_files.TOOLKIT,
        status_files.CUDA,
        status_files.PLUGIN,
        *status_files.MODULES,
    )
    assert of_validator == undo.STATUS_FILES
