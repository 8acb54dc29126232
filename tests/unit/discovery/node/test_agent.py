"""The discovery agent: facts once, facts when they change, and nothing held when it was told so."""

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.events import FactsEvent
from libs.contracts.facts import Facts, Gpu
from libs.contracts.identities import Writer
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import DriverLibrary
from libs.testing.simulation import make_env
from services.discovery.node import agent
from services.discovery.node.agent import DiscoverySettings
from tests.unit import agent_world
from tests.unit.agent_world import NODE, UID, AgentContext, AgentWorld, Story
from tests.unit.host.builders import put

GPU = Gpu(uuid="GPU-0", index=0, minor=0, pci="0000:1b:00.0", name="H100", memory_mib=81559)


class FakeDriver:
    """A driver that comes and goes, and whether anybody holds it."""

    def __init__(self) -> None:
        self.library: DriverLibrary | None = None
        self.held = 0
        self.gpus = MemoryGpus(
            [GPU],
            driver=lambda: self.library,
            samples=lambda one: GpuSample(uuid=one.uuid, index=one.index, pci=one.pci),
            held=self._held,
        )

    def _held(self, held: bool) -> None:
        self.held += 1 if held else -1


def play(story: Story, driver: FakeDriver, *, gpu_labels: bool = True) -> None:
    async def start(given: AgentContext) -> None:
        await agent.run(
            DiscoverySettings(node=NODE, node_uid=UID, gpu_labels=gpu_labels),
            bus=given.bus,
            host=agent_world.with_gpus(given.host, driver.gpus),
            journal=given.journal,
            env=make_env(clock=given.clock, random=given.random),
            service=given.service,
        )

    agent_world.play(story, writer=Writer.DISCOVERY, start=start)


def facts(ground: AgentWorld) -> list[Facts]:
    return [one for one in ground.reports if isinstance(one, Facts)]


def test_facts_are_reported_once_and_after_each_change() -> None:
    driver = FakeDriver()

    async def story(ground: AgentWorld) -> None:
        async with ground.agent():
            await ground.clock.sleep(300)
            assert len(facts(ground)) == 1
            put(ground.fake_machine.root, "/etc/os-release", "ID=ubuntu\nVERSION_ID=24.04\n")
            await ground.clock.sleep(120)
        first, second = facts(ground)
        assert first.os is None
        assert second.os is not None
        assert second.os.id == "ubuntu"
        assert first.kernel == second.kernel
        assert first.nvml_error == "no NVIDIA driver is loaded"
        (event,) = ground.events
        assert event.open() == FactsEvent(changed=("os",))
        assert (event.message, event.node, event.node_uid) == ("changed: os", NODE, UID)

    play(story, driver)


def test_gpus_are_reported_with_a_driver_and_stay_known_without_it() -> None:
    driver = FakeDriver()

    async def story(ground: AgentWorld) -> None:
        async with ground.agent():
            await ground.clock.sleep(10)
            driver.library = DriverLibrary(driver_version="570.86.15")
            await ground.clock.sleep(120)
            assert facts(ground)[-1].gpus == (GPU,)
            assert facts(ground)[-1].nvml_error == ""
            driver.library = None
            await ground.clock.sleep(120)
            assert facts(ground)[-1].gpus == (GPU,)
            assert facts(ground)[-1].nvml_error == "no NVIDIA driver is loaded"

    play(story, driver)


def test_quiesce_releases_the_gpus_and_survives_a_restart() -> None:
    driver = FakeDriver()
    driver.library = DriverLibrary(driver_version="570.86.15")

    async def story(ground: AgentWorld) -> None:
        async with ground.agent():
            await ground.until(lambda: driver.held)
            order = await ground.send_command(Quiesce())
            await ground.until(lambda: ground.result(order))
            assert driver.held == 0
            await ground.clock.sleep(300)
            assert driver.held == 0
        async with ground.agent():
            await ground.clock.sleep(300)
            assert driver.held == 0
            assert "are released while the driver changes" in facts(ground)[-1].nvml_error
            order = await ground.send_command(Idle())
            await ground.until(lambda: ground.result(order))
            assert driver.held == 1
            assert facts(ground)[-1].nvml_error == ""

    play(story, driver)


def test_without_gpu_labels_no_gpu_is_ever_asked() -> None:
    driver = FakeDriver()
    driver.library = DriverLibrary(driver_version="570.86.15")

    async def story(ground: AgentWorld) -> None:
        async with ground.agent():
            await ground.clock.sleep(120)
        assert driver.held == 0
        assert facts(ground)[-1].gpus is None

    play(story, driver, gpu_labels=False)
