"""`install`: the agent replaces the driver on its machine, wherever its process ends meanwhile."""

import asyncio
import errno
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec import structs

from libs.contracts.commands import Idle, Install, PreflightCheck, Proven, Swap
from libs.contracts.reports import Outcome, Preflight
from libs.host import driver_files, host_driver
from libs.host.artefacts import deb, installation, store
from libs.policy.artefacts import CONFIG_MAP, Artefact, parse_artefacts
from services.driver.node import undo
from services.driver.node.artefacts import ArtefactKeeper
from tests.builders.fake_machine import KERNEL
from tests.builders.machine_files import add_program, put
from tests.component.driver.node.host_trees import content_of, make_host
from tests.component.driver.node.test_host_installation import without_store
from tests.component.driver.node.test_undo import undoing
from tests.unit.driver.node.test_checks import SECURE_BOOT
from tests.unit.driver.node.world import World, in_world
from tests.unit.host.artefacts import packing
from tests.unit.host.artefacts.packing import FOLDER, deliver

T = TypeVar("T")

OLD, NEW = "570.86.15", "580.95.05"
POD = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01"


def offer(world: World, *versions: str, kernel: str = KERNEL) -> Mapping[str, Artefact]:
    """Deliver artefacts, and name them to the agent as the kubelet does; return them by version."""
    root = world.machine.root
    folder = root.parent / f"{root.name}-config"
    folder.mkdir(exist_ok=True)
    (folder / "folder").write_text(FOLDER)
    for version in versions:
        sources = [
            deliver(root, f"{version}.deb", "deb", packing.deb(packing.driver(version))),
            deliver(root, f"{version}.tar", "tar", packing.tar(packing.modules(kernel, version))),
        ]
        lines = [f"sha256:{e.sha256} {e.kind} {e.path.rpartition('/')[2]}" for e in sources]
        (folder / f"driver-{version}-ubuntu24.04-amd64").write_text("\n".join(lines))
    world.settings["artefacts"] = str(folder)
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    return {key.split("-")[1]: each for key, each in parse_artefacts(texts).named.items()}


def command(artefact: Artefact, version: str) -> Install:
    return Install(
        label=f"d-{version}", artefact_digest=artefact.digest, install_digest=f"i-{version}"
    )


@contextmanager
def free_space(world: World, size: int) -> Generator[None]:
    def free_bytes(_path: str) -> int:
        return size

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.machine.tree, "free_bytes", free_bytes)
        yield


def host(world: World) -> dict[str, tuple[object, ...]]:
    """Return the files of the machine that outlive a boot and are not Sluice's own."""
    found = without_store(content_of(world.machine.root))
    return {
        path: each
        for path, each in found.items()
        if path.partition("/")[0] not in ("proc", "sys", "dev", "run", "srv")
    }


@in_world
async def test_install_upgrade_and_remove(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts, before = offer(world, OLD, NEW), host(world)
    async with world.agent():
        for version in (OLD, NEW):
            order = await world.send_command(command(artefacts[version], version))
            result = await world.wait_for_result(order)
            assert (result.outcome, result.message) == (
                Outcome.DONE,
                f"driver {version} is loaded",
            )
            assert driver_files.installed_digest(world.machine.tree) == f"i-{version}"
            assert not host_driver.is_loaded(world.machine.tree)
        assert world.machine.unloaded == ["nvidia_modeset", "nvidia_uvm", "nvidia"]
        again = await world.send_command(command(artefacts[NEW], NEW))
        assert (await world.wait_for_result(again)).outcome is Outcome.DONE
        assert len(world.machine.unloaded) == 3
        assert len(world.machine.tree.names(store.STORE)) == 2
        assert host(world) != before
        order = await world.send_command(Swap(label=""))
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
    assert host(world) == before
    assert not world.machine.tree.exists(store.STORE)


@pytest.mark.parametrize("entries", range(1, 14))
def test_a_killed_agent_continues(entries: int) -> None:
    from tests.unit.driver.node.world import play

    async def story(world: World) -> None:
        make_host(world.machine.root, "ubuntu")
        artefacts = offer(world, OLD, NEW)
        async with world.agent():
            order = await world.send_command(command(artefacts[OLD], OLD))
            await world.wait_for_result(order)
        world.entries.clear()
        async with world.agent():
            order = await world.send_command(command(artefacts[NEW], NEW))
            await world.until(lambda: len(world.entries) >= entries or world.result(order))
        async with world.agent():
            result = await world.wait_for_result(order)
            assert (result.outcome, result.message) == (Outcome.DONE, f"driver {NEW} is loaded")
        tree = world.machine.tree
        installed = installation.installed(tree)
        assert installed is not None
        index = store.read_index(tree, installed.artefact)
        assert index is not None
        assert installation.is_whole(tree, index)
        assert not tree.exists(f"{packing.LIBRARIES}/libcuda.so.{OLD}")

    play(story)


@in_world
async def test_a_driver_in_use_stays_whole(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, OLD, NEW)
    machine = world.machine
    async with world.agent():
        order = await world.send_command(command(artefacts[OLD], OLD))
        await world.wait_for_result(order)
        placed = host(world)
        machine.add_process(4711, POD, "/dev/nvidia0", comm="train.py")
        order = await world.send_command(command(artefacts[NEW], NEW), deadline=60.0)
        result = await world.wait_for_result(order)
        assert (result.outcome, result.code) == (Outcome.FAILED, "busy")
        assert "train.py (pid 4711" in result.message
    assert host(world) == placed
    assert machine.unloaded == []


@in_world
async def test_what_cannot_be_installed_fails_by_name_and_changes_nothing(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts, before = offer(world, OLD), host(world)
    other = offer(world, NEW, kernel="6.8.0-99-generic")[NEW]
    unknown = Install(label="d", artefact_digest="sha256:" + "0" * 64, install_digest="i")
    expected = {"artefact": unknown, "no-modules": command(other, NEW)}
    async with world.agent():
        for code, body in expected.items():
            result = await world.wait_for_result(await world.send_command(body))
            assert (result.outcome, result.code) == (Outcome.FAILED, code)
        put(world.machine.root, "/run/ostree-booted", "")
        result = await world.wait_for_result(await world.send_command(command(artefacts[OLD], OLD)))
        assert (result.outcome, result.code) == (Outcome.FAILED, "immutable-system")
    assert host(world) == before


@in_world
async def test_modules_that_the_kernel_refuses_fail_and_a_retry_goes_on(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)
    world.machine.load_error = "finit_module: Key was rejected by service"
    async with world.agent():
        order = await world.send_command(command(artefacts[NEW], NEW))
        result = await world.wait_for_result(order)
        assert (result.outcome, result.code) == (Outcome.FAILED, "driver-start")
        assert "does not take module nvidia: finit_module: Key was rejected" in result.message
        world.machine.load_error = ""
        order = await world.send_command(command(artefacts[NEW], NEW))
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE


@in_world
async def test_a_driver_of_the_machine_is_not_replaced(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)
    world.machine.set_modules("nvidia", version="550.54")
    add_program(world.machine.root, "/usr/local/bin/other")
    add_program(world.machine.root, "/usr/sbin/nvidia-smi")
    async with world.agent():
        result = await world.wait_for_result(await world.send_command(command(artefacts[NEW], NEW)))
        assert (result.outcome, result.code) == (Outcome.FAILED, "host-driver")
    assert world.machine.unloaded == []


@in_world
async def test_the_preflight_brings_the_artefact_and_finds_what_hinders_it(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)
    digest = artefacts[NEW].digest
    with free_space(world, 8 << 30):
        async with world.agent():
            await world.send_check(PreflightCheck(label="d", artefact_digest=digest))
            await world.until(lambda: world.reported(Preflight))
            assert world.reported(Preflight)[-1].findings == ()
            assert store.read_index(world.machine.tree, digest) is not None
            put(world.machine.root, "/usr/bin/nvidia-smi", "of a package\n")
            await world.send_check(PreflightCheck(label="d", artefact_digest=digest), name="c-2")
            await world.until(lambda: len(world.reported(Preflight)) == 2)
            assert "file-exists" in [e.code for e in world.reported(Preflight)[-1].findings]
            unknown = PreflightCheck(label="d", artefact_digest="sha256:" + "0" * 64)
            await world.send_check(unknown, name="c-3")
            await world.until(lambda: len(world.reported(Preflight)) == 3)
            (finding,) = [e for e in world.reported(Preflight)[-1].findings if e.code == "artefact"]
            assert CONFIG_MAP in finding.remedy


@in_world
async def test_secure_boot_and_modules_without_a_signature_are_named(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    put(world.machine.root, SECURE_BOOT, "\x06\x00\x00\x00\x01")
    digest = offer(world, NEW)[NEW].digest
    with free_space(world, 8 << 30):
        async with world.agent():
            await world.send_check(PreflightCheck(label="d", artefact_digest=digest))
            await world.until(lambda: world.reported(Preflight))
    (finding,) = [
        each for each in world.reported(Preflight)[-1].findings if "signature" in each.message
    ]
    assert finding.code == "secure-boot"
    assert f"nvidia, nvidia_uvm, nvidia_modeset for kernel {KERNEL} have no" in finding.message


@in_world
async def test_the_preflight_unpacks_nothing_where_disk_space_is_short(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)
    with free_space(world, 2000 << 20):
        async with world.agent():
            for name in ("c-1", "c-2"):
                check = PreflightCheck(label="d", artefact_digest=artefacts[NEW].digest)
                await world.send_check(check, name=name)
            await world.until(lambda: len(world.reported(Preflight)) == 2)
            codes = [e.code for e in world.reported(Preflight)[-1].findings]
    assert "disk" in codes
    assert "artefact" not in codes
    assert not world.machine.tree.exists(store.STORE)


@in_world
async def test_a_driver_that_is_placed_is_loaded_whatever_space_is_left(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)
    async with world.agent():
        order = await world.send_command(command(artefacts[NEW], NEW))
        await world.wait_for_result(order)
        reboot(world)
        with free_space(world, 1 << 20):
            check = PreflightCheck(label="d", artefact_digest=artefacts[NEW].digest)
            await world.send_check(check)
            await world.until(lambda: world.reported(Preflight))
            assert world.reported(Preflight)[-1].findings == ()
            order = await world.send_command(command(artefacts[NEW], NEW))
            assert (await world.wait_for_result(order)).outcome is Outcome.DONE


@in_world
async def test_an_artefact_that_fails_unexpectedly_does_not_end_the_agent(world: World) -> None:
    def broken(_file: object) -> None:
        raise ZeroDivisionError

    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, OLD, NEW)
    check = PreflightCheck(label="d", artefact_digest=artefacts[OLD].digest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deb, "members", broken)
        async with world.agent():
            await world.send_check(check)
            await world.until(lambda: world.reported(Preflight))
            (found,) = [e for e in world.reported(Preflight)[-1].findings if e.code == "artefact"]
            assert "ZeroDivisionError" in found.message
            patch.undo()
            order = await world.send_command(command(artefacts[NEW], NEW))
            assert (await world.wait_for_result(order)).outcome is Outcome.DONE


@in_world
async def test_artefacts_that_cannot_be_removed_fail_no_op_whose_driver_is_loaded(
    world: World,
) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)

    def broken(*_: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "keep_only", broken)
        async with world.agent():
            order = await world.send_command(command(artefacts[NEW], NEW))
            assert (await world.wait_for_result(order)).outcome is Outcome.DONE


@in_world
async def test_nothing_is_removed_while_an_artefact_is_unpacked(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)
    running = 0

    class SlowOffload:
        async def run(self, work: Callable[[], T]) -> T:
            nonlocal running
            running += 1
            assert running == 1
            await world.clock.sleep(1)
            running -= 1
            return work()

    keeper = ArtefactKeeper(
        machine=structs.replace(world.machine.machine, offload=SlowOffload()),
        config_dir=str(world.settings["artefacts"]),
        clock=world.clock,
    )
    running_keeper = asyncio.create_task(keeper.run())
    bringing = asyncio.create_task(keeper.bring(artefacts[NEW].digest))
    while not running:
        await asyncio.sleep(0)
    await keeper.keep_only(lambda: ())
    await bringing
    assert not world.machine.tree.exists(store.STORE)
    running_keeper.cancel()
    await asyncio.wait([running_keeper])


@in_world
async def test_after_a_boot_only_the_proven_driver_is_loaded(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts = offer(world, NEW)
    machine = world.machine
    async with world.agent():
        order = await world.send_command(command(artefacts[NEW], NEW))
        await world.wait_for_result(order)
    reboot(world)
    async with world.agent():
        for proven in (
            None,
            Proven(label=f"d-{NEW}", kernel="6.8.0-99-generic", install_digest=f"i-{NEW}"),
            Proven(label=f"d-{NEW}", kernel=KERNEL, install_digest="i-other"),
            Proven(label="d-other", kernel=KERNEL, install_digest=f"i-{NEW}"),
        ):
            await world.send_command(Idle(proven=proven))
            await world.clock.sleep(30)
            assert "nvidia" not in (machine.tree.read_text("/proc/modules") or "")
        proven = Proven(label=f"d-{NEW}", kernel=KERNEL, install_digest=f"i-{NEW}")
        await world.send_command(Idle(proven=proven))
        await world.until(lambda: "nvidia_uvm" in (machine.tree.read_text("/proc/modules") or ""))
    reboot(world)
    world.server.stop()
    async with world.agent():  # NATS is away: what was last proven here counts
        await world.until(lambda: "nvidia_uvm" in (machine.tree.read_text("/proc/modules") or ""))


def reboot(world: World) -> None:
    world.machine.set_modules()
    world.machine.tree.remove(driver_files.STATE)


@in_world
async def test_the_removal_of_sluice_takes_the_driver_back(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts, before = offer(world, NEW), host(world)
    machine = world.machine
    async with world.agent():
        order = await world.send_command(command(artefacts[NEW], NEW))
        await world.wait_for_result(order)
    assert "is loaded: reboot it" in undo.remove_installation(machine.tree, None)
    machine.add_process(4711, POD, "/dev/nvidia0", comm="train.py")
    assert "is in use" in undo.remove_installation(machine.tree, machine)
    assert host(world) != before
    machine.remove_process(4711)
    assert undo.remove_installation(machine.tree, machine) == ""
    undo.remove_files(machine.tree)
    assert host(world) == before
    assert not machine.tree.exists("/var/lib/sluice")


@in_world
async def test_the_role_that_undoes_a_machine_waits_until_the_driver_is_free(world: World) -> None:
    make_host(world.machine.root, "ubuntu")
    artefacts, before = offer(world, NEW), host(world)
    machine = world.machine
    async with world.agent():
        order = await world.send_command(command(artefacts[NEW], NEW))
        await world.wait_for_result(order)
    placed = host(world)
    machine.add_process(4711, POD, "/dev/nvidia0", comm="train.py")
    async with undoing(world) as running:
        await world.until(lambda: "is in use" in running.problem)
        assert host(world) == placed
        machine.remove_process(4711)
        await world.until(lambda: not running.problem)
    assert host(world) == before
    assert "nvidia" not in (machine.tree.read_text("/proc/modules") or "")
    assert not machine.tree.exists("/var/lib/sluice")


def test_the_config_map_of_the_kubelet_is_read_through_its_links(tmp_path: Path) -> None:
    from services.driver.node.artefacts import read_artefacts

    data = tmp_path / "..2026"
    data.mkdir()
    (data / "folder").write_text("/srv/x")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "folder").symlink_to("..data/folder")
    assert read_artefacts(str(tmp_path)).folder == "/srv/x"
    assert not read_artefacts(str(tmp_path / "none")).exists
