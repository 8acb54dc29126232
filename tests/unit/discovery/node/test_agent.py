"""The discovery agent: facts once, facts when they change, and nothing held when it was told so."""

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.events import FactsChanged
from libs.contracts.facts import Facts, Gpu
from libs.contracts.identities import Writer
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import Library
from services.discovery.node import agent
from services.discovery.node.agent import DiscoverySettings
from tests.unit import stationed
from tests.unit.host.trees import put
from tests.unit.stationed import NODE, UID, Given, Ground, Story

GPU = Gpu(uuid="GPU-0", index=0, minor=0, pci="0000:1b:00.0", name="H100", memory_mib=81559)


class Driver:
    """A driver that comes and goes, and whether anybody holds it."""

    def __init__(self) -> None:
        self.library: Library | None = None
        self.held = 0
        self.gpus = MemoryGpus(
            [GPU],
            driver=lambda: self.library,
            samples=lambda one: GpuSample(uuid=one.uuid, index=one.index, pci=one.pci),
            held=self._held,
        )

    def _held(self, held: bool) -> None:
        self.held += 1 if held else -1


def play(story: Story, driver: Driver, *, gpu_labels: bool = True) -> None:
    async def start(given: Given) -> None:
        await agent.run(
            DiscoverySettings(node=NODE, node_uid=UID, gpu_labels=gpu_labels),
            bus=given.bus,
            host=stationed.with_gpus(given.host, driver.gpus),
            journal=given.journal,
            clock=given.clock,
            random=given.random,
            service=given.service,
        )

    stationed.play(story, writer=Writer.DISCOVERY, start=start)


def facts(ground: Ground) -> list[Facts]:
    return [one for one in ground.said if isinstance(one, Facts)]


def test_facts_are_said_once_and_again_when_they_change() -> None:
    driver = Driver()

    async def story(ground: Ground) -> None:
        async with ground.agent():
            await ground.clock.sleep(300)
            assert len(facts(ground)) == 1
            put(ground.box.root, "/etc/os-release", "ID=ubuntu\nVERSION_ID=24.04\n")
            await ground.clock.sleep(120)
        first, second = facts(ground)
        assert first.os is None
        assert second.os is not None
        assert second.os.id == "ubuntu"
        assert first.kernel == second.kernel
        assert first.nvml_error == "no NVIDIA driver is loaded"
        (event,) = ground.events
        assert event.open() == FactsChanged(changed=("os",))
        assert (event.message, event.node, event.node_uid) == ("not as before: os", NODE, UID)

    play(story, driver)


def test_gpus_are_told_once_there_is_a_driver_and_stay_known_without_it() -> None:
    driver = Driver()

    async def story(ground: Ground) -> None:
        async with ground.agent():
            await ground.clock.sleep(10)
            driver.library = Library(driver_version="570.86.15")
            await ground.clock.sleep(120)
            assert facts(ground)[-1].gpus == (GPU,)
            assert facts(ground)[-1].nvml_error == ""
            driver.library = None
            await ground.clock.sleep(120)
            assert facts(ground)[-1].gpus == (GPU,)
            assert facts(ground)[-1].nvml_error == "no NVIDIA driver is loaded"

    play(story, driver)


def test_it_lets_go_when_it_is_told_and_stays_so_over_a_restart() -> None:
    driver = Driver()
    driver.library = Library(driver_version="570.86.15")

    async def story(ground: Ground) -> None:
        async with ground.agent():
            await ground.until(lambda: driver.held)
            order = await ground.order(Quiesce())
            await ground.until(lambda: ground.result(order))
            assert driver.held == 0
            await ground.clock.sleep(300)
            assert driver.held == 0
        async with ground.agent():
            await ground.clock.sleep(300)
            assert driver.held == 0
            assert "told to let go" in facts(ground)[-1].nvml_error
            order = await ground.order(Idle())
            await ground.until(lambda: ground.result(order))
            assert driver.held == 1
            assert facts(ground)[-1].nvml_error == ""

    play(story, driver)


def test_without_gpu_labels_no_gpu_is_ever_asked() -> None:
    driver = Driver()
    driver.library = Library(driver_version="570.86.15")

    async def story(ground: Ground) -> None:
        async with ground.agent():
            await ground.clock.sleep(120)
        assert driver.held == 0
        assert facts(ground)[-1].gpus is None

    play(story, driver, gpu_labels=False)
