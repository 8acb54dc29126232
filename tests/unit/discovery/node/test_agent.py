"""The discovery agent: facts once and when they change; GPUs are released on command."""

import pytest

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.events import FactsEvent
from libs.contracts.facts import Facts, Kernel, LocalFeatures, NextKernel, PciDevice, Vgpu
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.contracts.identities import Writer
from libs.contracts.reports import Outcome
from libs.host.local_features import FOLDER, PREFIX
from services.agent_frame import Given
from services.discovery.node import agent
from services.discovery.node.agent import MAX_MISSED, DiscoverySettings, KnownFacts
from tests.builders.agent_world import NODE, UID, AgentWorld, in_world_of
from tests.builders.fake_machine import VERSION, gpu
from tests.builders.machine_files import put

GPUS = (gpu(0), gpu(1))


class World(AgentWorld):
    WRITER = Writer.DISCOVERY
    gpu_labels = True

    async def run_agent(self, given: Given) -> None:
        settings = DiscoverySettings(node=NODE, node_uid=UID, gpu_labels=self.gpu_labels)
        await agent.run(settings, given)

    @property
    def last(self) -> Facts:
        return self.reported(Facts)[-1]


in_world = in_world_of(World)


@in_world
async def test_facts_are_reported_once_and_after_each_change(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(300)
        assert len(world.reported(Facts)) == 1
        put(world.machine.root, "/etc/os-release", "ID=ubuntu\nVERSION_ID=24.04\n")
        await world.clock.sleep(120)
    first, second = world.reported(Facts)
    assert first.os is None
    assert second.os is not None
    assert second.os.id == "ubuntu"
    assert first.kernel == second.kernel
    assert first.nvml_error == REMEDIES[GpuProblem.DRIVER_NOT_LOADED]
    assert first.nvml_problem is GpuProblem.DRIVER_NOT_LOADED
    (event,) = world.events
    assert event.open() == FactsEvent(changed=("os",))
    assert (event.message, event.node, event.node_uid) == ("changed: os", NODE, UID)


@in_world
async def test_labels_of_feature_files_are_reported(world: World) -> None:
    path = f"{FOLDER}/site"
    async with world.agent():
        await world.clock.sleep(10)
        assert world.last.features == LocalFeatures()
        put(world.machine.root, path, "rack=b\nnvidia.com/gpu.count=99\n")
        await world.clock.sleep(60)
    assert world.last.features == LocalFeatures(
        labels={f"{PREFIX}rack": "b"},
        refused=1,
        why=f"{path}: line 2: keys of kubernetes.io, k8s.io, nvidia.com, sluice.dev are not used,"
        f" but for {PREFIX}",
    )
    (event,) = world.events
    assert event.open() == FactsEvent(changed=("features",))


@in_world
async def test_a_kernel_that_is_installed_meanwhile_is_reported(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(10)
        assert world.last.next_kernel == NextKernel()
        newer = "6.8.0-50-generic"
        put(world.machine.root, f"/boot/vmlinuz-{newer}", "")
        put(world.machine.root, f"/lib/modules/{newer}/modules.order", "")
        put(world.machine.root, "/run/reboot-required", "")
        await world.clock.sleep(60)
    assert world.last.next_kernel == NextKernel(release=newer, reboot_required=True)


@in_world
async def test_gpus_are_reported_with_a_driver_and_stay_known_without_it(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(10)
        world.driver.set_version(VERSION)
        await world.clock.sleep(120)
        assert (world.last.gpus, world.last.nvml_error) == (GPUS, "")
        world.driver.set_version("")
        await world.clock.sleep(120)
        assert (world.last.gpus, world.last.nvml_problem) == (GPUS, GpuProblem.DRIVER_NOT_LOADED)


@in_world
async def test_quiesce_releases_the_gpus_and_survives_a_restart(world: World) -> None:
    driver = world.driver
    driver.set_version(VERSION)
    async with world.agent():
        await world.until(lambda: driver.held)
        await world.carry_out(Quiesce())
        assert driver.held == 0
        await world.clock.sleep(300)
        assert driver.held == 0
    async with world.agent():
        await world.clock.sleep(300)
        assert driver.held == 0
        assert "are released while the driver changes" in world.last.nvml_error
        await world.carry_out(Idle())
        assert driver.held == 1
        assert world.last.nvml_error == ""


@in_world
async def test_quiesce_fails_while_the_kernel_holds_a_device_open(world: World) -> None:
    world.driver.set_version(VERSION)
    async with world.agent():
        await world.until(lambda: world.driver.held)
        world.driver.gpus.is_stuck = True
        result = await world.carry_out(Quiesce())
        assert (result.outcome, result.code) == (Outcome.FAILED, "devices-open")
        assert "the node must be rebooted" in result.message
        assert world.driver.held == 1


@in_world
async def test_without_gpu_labels_the_library_is_not_opened(world: World) -> None:
    world.driver.set_version(VERSION)
    world.gpu_labels = False
    async with world.agent():
        await world.clock.sleep(120)
    assert world.driver.held == 0
    assert world.last.gpus is None


# Known facts.


def device(address: str, driver: str = "") -> PciDevice:
    return PciDevice(
        address=address, vendor="10de", device="2330", device_class="0302", driver=driver
    )


A, B = device("a"), device("b")
BOTH, ONLY_A, NO_DEVICES = Facts(pci=(A, B)), Facts(pci=(A,)), Facts(pci=())
KERNEL, NEWER = Facts(kernel=Kernel(release="6.8")), Facts(kernel=Kernel(release="6.9"))


RACK, NO_RACK = Facts(features=LocalFeatures(labels={"rack": "b"})), Facts(features=LocalFeatures())
OTHER_RACK = Facts(features=LocalFeatures(labels={"rack": "c"}, refused=1))
GUEST = Facts(vgpu=Vgpu(present=True))


@pytest.mark.parametrize(
    ("scans", "known"),
    [
        pytest.param([BOTH], BOTH, id="the first scan is known"),
        pytest.param([KERNEL, Facts()], KERNEL, id="a missing section stays"),
        pytest.param([BOTH, Facts()], BOTH, id="missing devices stay"),
        pytest.param([KERNEL, NEWER], NEWER, id="a new section is taken"),
        pytest.param([Facts(nvml_error="hung"), Facts()], Facts(), id="an error is of one scan"),
        pytest.param([BOTH, *[ONLY_A] * (MAX_MISSED - 1)], BOTH, id="a device missed for a while"),
        pytest.param([BOTH, *[ONLY_A] * MAX_MISSED], ONLY_A, id="a device missed for long"),
        pytest.param([BOTH, NO_DEVICES], BOTH, id="all devices missed once"),
        pytest.param([BOTH, *[NO_DEVICES] * MAX_MISSED], NO_DEVICES, id="all missed for long"),
        pytest.param(
            [BOTH, ONLY_A, BOTH, *[ONLY_A] * (MAX_MISSED - 1)], BOTH, id="counting starts again"
        ),
        pytest.param(
            [BOTH, ONLY_A, Facts(), Facts(), ONLY_A], BOTH, id="failed scans do not count"
        ),
        pytest.param(
            [ONLY_A, Facts(pci=(device("a", "nvidia"),))],
            Facts(pci=(device("a", "nvidia"),)),
            id="the last state of a device",
        ),
        pytest.param([Facts(pci=(B,)), ONLY_A], BOTH, id="devices in order of addresses"),
        pytest.param([GUEST, Facts()], GUEST, id="a configuration that cannot be read"),
        pytest.param([RACK, Facts()], RACK, id="missing feature files stay"),
        pytest.param([RACK, OTHER_RACK], OTHER_RACK, id="a changed label is taken"),
        pytest.param([RACK, *[NO_RACK] * (MAX_MISSED - 1)], RACK, id="a label missed for a while"),
        pytest.param([RACK, *[NO_RACK] * MAX_MISSED], NO_RACK, id="a label missed for long"),
        pytest.param(
            [RACK, NO_RACK, RACK, *[NO_RACK] * (MAX_MISSED - 1)], RACK, id="counting labels anew"
        ),
        pytest.param([RACK, NO_RACK, Facts(), Facts(), NO_RACK], RACK, id="failed scans of labels"),
    ],
)
def test_known_facts_survive_failed_scans(scans: list[Facts], known: Facts) -> None:
    state = KnownFacts()
    for scan in scans:
        state = state.after(scan)
    assert state.facts == known
