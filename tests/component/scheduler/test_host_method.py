"""Drivers on the hosts themselves, from a GPUClusterPolicy to nodes that are done."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.journal import EntryPhase
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.rollout import RolloutStatus
from libs.host.artefacts import store
from libs.host.tree import Tree
from libs.policy.artefacts import CONFIG_MAP
from services.scheduler import resources
from tests.component.driver.node.host_trees import content_of
from tests.component.driver.node.test_host_installation import without_store
from tests.component.processes import ARTEFACTS, NAMESPACE
from tests.component.scheduler.world import (
    CORDON,
    NEW,
    OLD,
    World,
    in_world,
    most_cordoned,
)
from tests.unit.host.artefacts import packing
from tests.unit.host.artefacts.packing import FOLDER, deliver
from tests.unit.policy.situations import from_corpus

CUDA = "13.0"
SYSTEM = "ubuntu22.04-amd64"
NODES = ("a", "b", "c")


async def install(world: World, *names: str) -> None:
    """Add machines with all agents."""
    await world.install()
    await world.add_nodes(*names)


async def apply_policy(world: World, version: str, **spec: Any) -> None:
    (policy,) = from_corpus("gpu-cluster-policy.yaml")
    policy["spec"] |= {"driver": {"enabled": True, "version": version}, **spec}
    await world.apply(policy)


async def offer(world: World, *versions: str, module: bytes = b"", notes: str = "") -> None:
    """Deliver the artefacts of these versions, and of CUDA, to all machines, and name them.

    `module` is what they have in place of the module `nvidia`; `notes` are in a file of their own,
    so that the artefacts differ by it.
    """
    data = {"folder": FOLDER}
    cuda = {f"/usr/local/cuda-{CUDA}/lib64/libcudart.so": b"cuda\n"}
    data |= _named(world, f"cuda-{CUDA}", {"cuda.tar": ("tar", packing.tar(cuda))})
    for version in versions:
        driver, modules = packing.driver(version), packing.modules(kernel(world), version)
        if notes:
            driver |= {f"/usr/share/doc/nvidia-{version}/notes": notes.encode()}
        if module:
            modules |= {f"/lib/modules/{kernel(world)}/updates/nvidia.ko": module}
        files = {
            f"{version}.deb": ("deb", packing.deb(driver)),
            f"{version}.tar": ("tar", packing.tar(modules)),
        }
        data |= _named(world, f"driver-{version}", files)
    await world.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
            "data": data,
        }
    )
    mounted = next(iter(world.machines.values())).root.parent / ARTEFACTS
    mounted.mkdir(exist_ok=True)
    for key, text in data.items():
        (mounted / key).write_text(text)


def _named(world: World, what: str, files: Mapping[str, tuple[str, bytes]]) -> dict[str, str]:
    lines: list[str] = []
    for name, (kind, content) in files.items():
        sources = [deliver(each.root, name, kind, content) for each in world.machines.values()]
        lines.append(f"sha256:{sources[0].sha256} {kind} {name}")
    return {f"{what}-{SYSTEM}": "\n".join(lines)}


def kernel(world: World) -> str:
    return next(iter(world.machines.values())).system.kernel


def host(root: Path) -> dict[str, tuple[object, ...]]:
    """Return the files of a machine below /usr, /lib and /etc."""
    found = without_store(content_of(root))
    return {
        path: each
        for path, each in found.items()
        if path.partition("/")[0] in ("usr", "lib", "etc")
    }


async def wait_until_all_run(world: World, version: str, *names: str) -> None:
    async def done() -> bool:
        rollouts = (await world.kube.list_page(resources.ROLLOUTS)).items
        return all(world.driver_version(name) == version for name in names) and any(
            each.status.phase == "Complete" and each.status.counts.done == len(names)
            for each in rollouts
        )

    await world.until_written(done, within=1800.0)


@in_world
async def test_a_node_waits_until_an_artefact_is_named_for_it(world: World) -> None:
    await install(world, "a")
    await apply_policy(world, NEW)
    world.start()
    await world.sleep(60)
    wait = await world.wait_of("a")
    assert wait.code == "target-missing"
    assert f"there is no ConfigMap {CONFIG_MAP}" in wait.detail
    await offer(world, OLD)
    await world.sleep(30)
    wait = await world.wait_of("a")
    assert f"names no artefact driver-{NEW}-{SYSTEM}" in wait.detail
    found = await world.node("a")
    assert not found.spec.unschedulable
    assert DRIVER_LABEL not in found.metadata.labels
    await offer(world, OLD, NEW)
    await wait_until_all_run(world, NEW, "a")
    assert await world.state("a") == "upgrade-done"


@in_world
async def test_a_fleet_is_upgraded_and_left_as_it_was(world: World) -> None:
    await install(world, *NODES)
    before = {name: host(world.machines[name].root) for name in NODES}
    await offer(world, OLD, NEW)
    await apply_policy(world, OLD)
    world.start()
    await wait_until_all_run(world, OLD, *NODES)
    await apply_policy(world, NEW)
    await wait_until_all_run(world, NEW, *NODES)
    for name in NODES:
        assert await world.state(name) == "upgrade-done"
        assert world.journalled(name, "install", EntryPhase.STARTED) == 2
        assert world.journalled(name, "install", EntryPhase.STEP, "unload: ok") == 1
        tree = Tree(world.machines[name].root)
        assert tree.exists(f"{packing.LIBRARIES}/libcuda.so.{NEW}")
        assert not tree.exists(f"{packing.LIBRARIES}/libcuda.so.{OLD}")
        assert tree.exists(f"/usr/local/cuda-{CUDA}/lib64/libcudart.so")
        assert world.machines[name].incidents == ()
    assert most_cordoned(world.committed()) == 1
    for name in NODES:
        await world.label(name, {"nvidia.com/gpu.deploy.driver": "false"})

    async def removed() -> bool:
        return all(world.machines[name].driver is None for name in NODES)

    await world.until(removed, within=1800.0)
    await world.sleep(60)
    assert {name: host(world.machines[name].root) for name in NODES} == before
    for name in NODES:
        assert not Tree(world.machines[name].root).exists(store.STORE)


@in_world
async def test_a_damaged_file_costs_no_capacity(world: World) -> None:
    await install(world, "a")
    await offer(world, OLD, NEW)
    await apply_policy(world, OLD)
    world.start()
    await wait_until_all_run(world, OLD, "a")
    damaged = world.machines["a"].root / FOLDER.lstrip("/") / f"{NEW}.deb"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1])
    await apply_policy(world, NEW)
    await world.sleep(300)
    wait = await world.wait_of("a")
    assert wait.code == "preflight"
    assert "its digest is sha256:" in wait.detail
    cordons = [each for each in world.committed("a") if CORDON in each.changed]
    assert world.driver_version("a") == OLD
    damaged.write_bytes(content)
    await wait_until_all_run(world, NEW, "a")
    later = [each for each in world.committed("a") if CORDON in each.changed]
    assert len(later) == len(cordons) + 2


@in_world
async def test_after_a_reboot_the_proven_driver_comes_back_and_is_validated(world: World) -> None:
    await install(world, "a")
    await offer(world, NEW)
    await apply_policy(world, NEW)
    world.start()
    await wait_until_all_run(world, NEW, "a")
    machine = world.machines["a"]
    cordons = [each for each in world.committed("a") if CORDON in each.changed]
    await world.reboot("a", off=5)
    assert machine.driver is None

    async def proven() -> bool:
        record = (await world.node("a")).record
        evidence = getattr(record, "evidence", None)
        return evidence is not None and evidence.boot_id == machine.boot_id

    await world.until_written(proven, within=600.0)
    driver = machine.driver
    assert driver is not None
    assert driver.version == NEW
    assert world.journalled("a", "install", EntryPhase.STARTED) == 1
    assert [each for each in world.committed("a") if CORDON in each.changed] == cordons


@pytest.mark.dear("three nodes are upgraded three times, with files of their own")
@in_world
async def test_other_files_of_a_proven_version_have_to_prove_themselves(world: World) -> None:
    await install(world, *NODES)
    await offer(world, NEW)
    await apply_policy(world, NEW)
    world.start()
    await wait_until_all_run(world, NEW, *NODES)
    proven = await rollout(world)
    labels = {name: await label(world, name) for name in NODES}
    await offer(world, NEW, module=b"\x7fELF of another kernel")

    async def halted() -> bool:
        return (await rollout(world)).phase == "Halted"

    await world.until_written(halted, within=1800.0)
    await world.sleep(600)
    states = {name: await world.state(name) for name in NODES}
    (failed,) = [name for name, state in states.items() if state == "upgrade-failed"]
    assert (await rollout(world)).target != proven.target
    for name in set(NODES) - {failed}:
        wait = await world.wait_of(name)
        assert wait.code == "halted"
        assert await label(world, name) == labels[name]
        assert world.machines[name].driver is not None
    await offer(world, NEW, notes="with the module for this kernel")
    await wait_until_all_run(world, NEW, *NODES)
    for name in NODES:
        assert await world.state(name) == "upgrade-done"
        tree = Tree(world.machines[name].root)
        assert tree.exists(f"/usr/share/doc/nvidia-{NEW}/notes")


@in_world
async def test_files_that_change_during_an_upgrade_are_installed_after_it(world: World) -> None:
    await install(world, *NODES)
    await offer(world, OLD, NEW)
    await apply_policy(world, OLD)
    world.start()
    await wait_until_all_run(world, OLD, *NODES)
    await apply_policy(world, NEW)
    first = ""

    async def started() -> bool:
        nonlocal first
        states = {name: await world.state(name) for name in NODES}
        first = next((name for name in NODES if states[name] == "pod-restart-required"), "")
        return bool(first)

    await world.until_written(started, within=600.0)
    await offer(world, NEW, notes="corrected")
    await wait_until_all_run(world, NEW, *NODES)
    for name in NODES:
        tree = Tree(world.machines[name].root)
        assert tree.exists(f"/usr/share/doc/nvidia-{NEW}/notes")
        installs = world.journalled(name, "install", EntryPhase.STARTED)
        assert installs == (3 if name == first else 2)
    status = await rollout(world)
    assert (status.counts.failed, most_cordoned(world.committed())) == (0, 1)


async def rollout(world: World) -> RolloutStatus:
    (found,) = (await world.kube.list_page(resources.ROLLOUTS)).items
    return found.status


async def label(world: World, name: str) -> str:
    return (await world.node(name)).metadata.labels.get(DRIVER_LABEL, "")
