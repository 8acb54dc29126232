"""The container runtime is configured, restarted when that hurts no pod, and as before after it."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from libs.contracts.commands import Swap
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import ContainerRuntime, Facts
from libs.contracts.reports import Outcome
from libs.host import diagnosing
from libs.host.cdi import published
from libs.host.runtimes import containerd
from libs.host.runtimes.common import HANDLERS
from libs.host.runtimes.containerd import DROP_IN, MAIN
from services.driver.node.agent import DriverAgentSettings
from tests.builders.machine_files import put
from tests.component.driver.node.memory_runtime import UNIT, MemoryRuntime
from tests.unit.driver.node.test_toolkit import start_driver
from tests.unit.driver.node.world import World, in_world
from tests.unit.host.runtimes.test_configuration import content
from tests.unit.host.runtimes.test_containerd import PEOPLES

POD = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01"
CRI = containerd.SECTIONS[3]
READY = ContainerRuntime(name="containerd", handlers=HANDLERS, cdi=True)
LACKING = "containerd does not know the handlers nvidia, nvidia-cdi and reads no CDI specs"


def runtime(world: World, text: str = PEOPLES, **values: Any) -> MemoryRuntime:
    """Give the machine a container runtime, which has started already."""
    machine = world.machine
    put(machine.root, MAIN, text)
    (machine.root / "var/lib").mkdir(parents=True, exist_ok=True)
    made = MemoryRuntime(machine.tree, **values)
    machine.machine = msgspec.structs.replace(machine.machine, runtime=made)
    return made


def last(world: World) -> ContainerRuntime | None:
    facts = world.reported(Facts)
    return facts[-1].container_runtime if facts else None


def why(world: World) -> str:
    found = last(world)
    return found.why if found else ""


@contextmanager
def unchanged(world: World) -> Generator[None]:
    """Check that the host's own files are the same at the end."""
    before = etc(world)
    yield
    assert etc(world) == before


def etc(world: World) -> dict[str, tuple[int, bytes]]:
    root = world.machine.root
    return {**content(root / "etc"), **content(root / "var")}


def compute(world: World, pid: int = 4711) -> None:
    world.machine.add_process(pid, POD, "/dev/nvidia4", "/dev/nvidia-uvm", comm="train.py")


@in_world
async def test_a_node_without_gpu_pods_is_configured_at_once(world: World) -> None:
    containers = runtime(world)
    # A program that measures GPUs is no reason to wait.
    world.machine.add_process(4712, POD, "/dev/nvidia4", "/dev/nvidiactl", comm="exporter")
    async with world.agent():
        await world.until(lambda: last(world) == READY)
        await world.clock.sleep(90)
    assert containers.restarts == [UNIT]
    assert containers.questions == 2
    async with world.agent():
        await world.clock.sleep(90)
    assert (containers.restarts, containers.questions) == ([UNIT], 3)


@in_world
async def test_what_the_runtime_lacks_is_noted_for_the_evidence_until_it_is_there(
    world: World,
) -> None:
    containers = runtime(world)
    containers.refusal = "Access denied"
    tree = world.machine.tree
    async with world.agent():
        await world.until(lambda: "Access denied" in why(world))
        assert tree.read_text(diagnosing.RUNTIME_LACKS) == LACKING
        assert Diagnosis.RUNTIME_HANDLER in diagnosing.notes(tree)
        containers.refusal = ""
        await world.until(lambda: last(world) == READY)
        assert not tree.exists(diagnosing.RUNTIME_LACKS)
        assert Diagnosis.RUNTIME_HANDLER not in diagnosing.notes(tree)


@in_world
async def test_nothing_is_changed_where_nothing_is_missing(world: World) -> None:
    tables = "".join(
        f'[plugins."{CRI}".containerd.runtimes.{each}]\nruntime_type = "theirs"\n'
        for each in HANDLERS
    )
    on = f'[plugins."{CRI}"]\nenable_cdi = true\n'
    containers = runtime(world, f"version = 3\n{on}{tables}")
    with unchanged(world):
        async with world.agent():
            await world.until(lambda: last(world) == READY)
            await world.clock.sleep(30)
    assert containers.restarts == []


@in_world
async def test_a_restart_waits_until_no_pod_computes(world: World) -> None:
    containers = runtime(world)
    compute(world)
    start_driver(world)
    async with world.agent():
        await world.until(lambda: "waits for pods that use GPUs: train.py" in why(world))
        await world.clock.sleep(30)
        assert why(world).startswith(f"{LACKING} before it is restarted")
        assert containers.restarts == []
        assert world.machine.tree.exists(DROP_IN)
        # containerd would start containers without the GPUs that they ask for.
        assert published.devices(world.machine.tree) == frozenset()
        world.machine.remove_process(4711)
        await world.until(lambda: last(world) == READY)
        await world.until(lambda: published.devices(world.machine.tree))
    assert containers.restarts == [UNIT]


@in_world
async def test_a_swap_begins_with_the_restart(world: World) -> None:
    containers = runtime(world)
    compute(world)
    start_driver(world)
    async with world.agent():
        await world.until(lambda: "waits for pods" in why(world))
        world.machine.remove_process(4711)
        unload = world.machine.unload

        def watched(module: str) -> Any:
            assert containers.restarts == [UNIT]
            return unload(module)

        world.machine.unload = watched
        order = await world.send_command(Swap(label=""))
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
    assert world.machine.unloaded == ["nvidia_uvm", "nvidia"]
    assert last(world) == READY


@in_world
async def test_a_runtime_that_does_not_come_back_gets_its_files_back(world: World) -> None:
    containers = runtime(world)
    containers.fails_with_drop_in = True
    with unchanged(world):
        async with world.agent():
            await world.until(lambda: containers.restarts == [UNIT, UNIT])
            await world.until(lambda: "as it was before" in why(world))
            await world.clock.sleep(90)
    assert containers.restarts == [UNIT, UNIT]
    assert why(world).endswith("does not answer; its configuration is as it was before")
    # Not tried again until people change something.
    containers.fails_with_drop_in = False
    put(world.machine.root, MAIN, f"{PEOPLES}# another disk\n")
    async with world.agent():
        await world.until(lambda: last(world) == READY)


@in_world
async def test_a_runtime_with_another_configuration_is_found_out(world: World) -> None:
    containers = runtime(world, main="/opt/containerd.toml")
    with unchanged(world):
        async with world.agent():
            await world.until(lambda: "is its configuration another file?" in why(world))
            await world.clock.sleep(90)
    assert containers.restarts == [UNIT]


@in_world
async def test_without_systemd_a_person_or_a_setting_decides(world: World) -> None:
    containers = runtime(world, unit="")
    async with world.agent():
        await world.until(lambda: "set RUNTIME_RESTART_MODE to signal" in why(world))
    assert containers.restarts == []
    for mode, said in (
        ("none", "as RUNTIME_RESTART_MODE is none"),
        ("reboot", "RUNTIME_RESTART_MODE is 'reboot'"),
        ("systemd", "it runs in no unit of systemd"),
    ):
        world.settings = {"runtime_restart_mode": mode}
        async with world.agent():
            await world.until(lambda said=said: said in why(world))
    world.settings = {"runtime_restart_mode": "signal"}
    async with world.agent():
        await world.until(lambda: last(world) == READY)
    assert containers.restarts == ["signal"]


@in_world
async def test_a_refused_restart_is_said_and_tried_again(world: World) -> None:
    containers = runtime(world)
    containers.refusal = "Access denied"
    async with world.agent():
        await world.until(lambda: "because it cannot be restarted: Access denied" in why(world))
        containers.refusal = ""
        await world.until(lambda: last(world) == READY)
    assert containers.restarts == [UNIT]


@in_world
async def test_what_is_switched_off_is_taken_back(world: World) -> None:
    containers = runtime(world)
    for off in ({"toolkit": False}, {"no_runtime_config": True}):
        with unchanged(world):
            world.settings = {}
            async with world.agent():
                await world.until(lambda: last(world) == READY)
            world.settings = off
            async with world.agent():
                await world.until(lambda: (last(world) or READY).handlers == ())
                await world.clock.sleep(30)
    assert containers.restarts == [UNIT] * 4


@in_world
async def test_broken_toml_is_left_alone(world: World) -> None:
    containers = runtime(world)
    put(world.machine.root, MAIN, "version = ")
    with unchanged(world):
        async with world.agent():
            await world.until(lambda: f"{LACKING}: {MAIN} is not valid TOML" in why(world))
    assert containers.restarts == []


def test_the_variables_of_nvidias_toolkit_are_known() -> None:
    settings = DriverAgentSettings(
        node="a",
        runtime_class="gpu",
        containerd_config="/a.toml",
        runtime_config="/b.toml",
        runtime_drop_in_config="/c.toml",
        runtime_restart_mode="systemd",
    ).runtime
    assert settings.handlers == ("gpu", "nvidia-cdi")
    assert (settings.main, settings.drop_in) == ("/b.toml", "/c.toml")
    assert (settings.restart, settings.configure) == ("systemd", True)
    named = DriverAgentSettings(node="a", runtime_class="gpu", nvidia_runtime_name="nvidia-cdi")
    assert named.runtime.handlers == ("nvidia-cdi",)
