"""The validator agent: evidence says what was proven, and a failure what it means."""

from collections.abc import Callable

import msgspec
import pytest

from libs.contracts.commands import Idle, Order, Validate
from libs.contracts.events import CommandEvent, EvidenceEvent
from libs.contracts.facts import Gpu
from libs.contracts.identities import Writer
from libs.contracts.reports import Evidence, Outcome, Result
from libs.contracts.telemetry import GpuSample
from libs.host import driver_files
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import DriverLibrary
from libs.testing.simulation import make_env
from services.validator.node import agent
from services.validator.node.agent import ValidatorSettings
from tests.unit import agent_world
from tests.unit.agent_world import NODE, UID, AgentContext, AgentWorld, Story
from tests.unit.fake_machine import BOOT, KERNEL, FakeMachine
from tests.unit.host.builders import put

POD = "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
BOOTED = 1_790_000_000
STARTED = BOOTED + 500.25
ASKED = Validate(label="d-2", install_digest="i-2", pod_uid=POD, started=BOOTED + 500.0)
VERSION = "570.86.15"


class MachineFixture:
    """A machine with two GPUs and a driver that is all right, until a test says otherwise."""

    def __init__(self) -> None:
        self.library: DriverLibrary | None = DriverLibrary(driver_version=VERSION)
        self.held = 0
        self.gpus = MemoryGpus(
            [_gpu(0), _gpu(1)],
            driver=lambda: self.library,
            samples=lambda one: GpuSample(uuid=one.uuid, index=one.index, pci=one.pci),
            held=self._held,
        )

    def _held(self, held: bool) -> None:
        self.held += 1 if held else -1

    def prepare(self, box: FakeMachine) -> None:
        box.load_driver(VERSION)
        put(box.root, driver_files.STATE, "i-2")
        put(box.root, "/proc/stat", f"cpu 1 2 3\nbtime {BOOTED}\n")
        box.add_process(100, POD, comm="nvidia-driver")
        fields = " ".join(["S", *["0"] * 18, "50025", *["0"] * 10])
        put(box.root, "/proc/100/stat", f"100 (nvidia (driver) x) {fields}")
        for number in (0, 1):
            for name, text in _PCI.items():
                put(box.root, f"/sys/bus/pci/devices/0000:0{number}:00.0/{name}", text)


_PCI = {
    "class": "0x030200",
    "vendor": "0x10de",
    "device": "0x2330",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
}


Change = Callable[[FakeMachine, MachineFixture], None]


def _gpu(index: int) -> Gpu:
    address = f"00000000:0{index}:00.0"
    return Gpu(
        uuid=f"GPU-{index}", index=index, minor=index, pci=address, name="H100", memory_mib=81559
    )


def play(story: Story, node: MachineFixture) -> None:
    async def start(given: AgentContext) -> None:
        await agent.run(
            ValidatorSettings(node=NODE, node_uid=UID),
            bus=given.bus,
            host=agent_world.with_gpus(given.host, node.gpus),
            journal=given.journal,
            env=make_env(clock=given.clock, random=given.random),
            service=given.service,
        )

    agent_world.play(story, writer=Writer.VALIDATOR, start=start)


def validated(change: Change | None = None, asked: Validate = ASKED) -> tuple[Evidence, Result]:
    """The evidence and the result, on a machine with this change."""
    node, got = MachineFixture(), list[tuple[Evidence, Result]]()

    async def story(ground: AgentWorld) -> None:
        node.prepare(ground.fake_machine)
        if change is not None:
            change(ground.fake_machine, node)
        async with ground.agent():
            order = await ground.send_command(asked)
            await ground.until(lambda: ground.result(order))
            result = ground.result(order)
            assert result is not None
            (evidence,) = {one for one in ground.reports if isinstance(one, Evidence)}
            assert ground.reports.index(evidence) < ground.reports.index(result)
            assert evidence.order == order == Order(1, 1)
            got.append((evidence, result))
        assert node.held == 0

    play(story, node)
    return got[0]


def test_the_evidence_names_exactly_what_was_proven() -> None:
    evidence, result = validated()
    assert result.outcome is Outcome.DONE
    assert [(step.name, step.passed) for step in evidence.steps] == [("driver", True)]
    assert msgspec.structs.replace(evidence, steps=(), at=0.0) == Evidence(
        epoch=1,
        token=1,
        op=1,
        passed=True,
        label="d-2",
        node_uid=UID,
        boot_id=BOOT,
        kernel=KERNEL,
        driver_pod_uid=POD,
        driver_started=BOOTED + 500.0,
        driver_version=VERSION,
        driver_digest="i-2",
        runtime_digest="none",
        mig_digest="none",
    )


def test_without_a_requested_start_the_kernels_counts() -> None:
    evidence, _ = validated(asked=msgspec.structs.replace(ASKED, started=0.0))
    assert evidence.passed
    assert evidence.driver_started == STARTED


def test_a_driver_on_the_host_has_no_pod() -> None:
    asked = Validate(label="d-2", started=BOOTED + 9.0)
    evidence, _ = validated(_ended, asked)
    assert evidence.passed
    assert (evidence.driver_pod_uid, evidence.driver_started) == ("", BOOTED + 9.0)


def _ended(box: FakeMachine, _node: MachineFixture) -> None:
    box.remove_process(100)


def _unloaded(box: FakeMachine, _node: MachineFixture) -> None:
    box.set_modules()


def _installed_before(box: FakeMachine, _node: MachineFixture) -> None:
    put(box.root, driver_files.STATE, "i-1")


def _without(path: str) -> Change:
    def change(box: FakeMachine, _node: MachineFixture) -> None:
        box.tree.at(path).unlink()

    return change


def _library(version: str | None) -> Change:
    def change(_box: FakeMachine, node: MachineFixture) -> None:
        node.library = None if version is None else DriverLibrary(driver_version=version)

    return change


def _gpus(*gpus: Gpu) -> Change:
    def change(_box: FakeMachine, node: MachineFixture) -> None:
        node.gpus.change(gpus)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_ended, "it has ended"),
        (_without(driver_files.READY), "the driver container is not ready"),
        (_unloaded, "module nvidia is not loaded"),
        (_library(None), "NVML does not answer (no NVIDIA driver is loaded)"),
        (_library("550.54"), "NVML is of driver 550.54, but the kernel has 570.86.15"),
        (_gpus(_gpu(0)), "1 of 2 GPUs; 0000:01:00.0 are missing"),
        (_gpus(), "0 of 2 GPUs"),
        (_gpus(_gpu(0), msgspec.structs.replace(_gpu(1), hung=True)), "GPU-1 does not answer"),
        (_installed_before, "was installed from i-1"),
        (_without(driver_files.STATE), "from an unknown source, but i-2 is wanted"),
    ],
)
def test_each_failure_says_what_it_means(change: Change, says: str) -> None:
    evidence, result = validated(change)
    assert not evidence.passed
    assert says in evidence.steps[0].message
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver")
    assert result.message == evidence.steps[0].message


def test_a_restarted_container_is_not_the_requested_run() -> None:
    evidence, _ = validated(asked=msgspec.structs.replace(ASKED, started=BOOTED + 400.0))
    assert not evidence.passed
    assert "restarted" in evidence.steps[0].message


def test_gpus_that_come_up_one_after_another_are_waited_for() -> None:
    node = MachineFixture()

    async def story(ground: AgentWorld) -> None:
        node.prepare(ground.fake_machine)
        node.gpus.change([_gpu(0)])
        async with ground.agent():
            order = await ground.send_command(ASKED)
            await ground.until(lambda: ground.phases(order))
            node.gpus.change([_gpu(0), _gpu(1)])
            await ground.until(lambda: ground.result(order))
            result = ground.result(order)
            assert result is not None
            assert result.outcome is Outcome.DONE

    play(story, node)


def test_a_validation_that_is_no_longer_wanted_ends() -> None:
    node = MachineFixture()

    async def story(ground: AgentWorld) -> None:
        node.prepare(ground.fake_machine)
        node.library = None
        async with ground.agent():
            order = await ground.send_command(ASKED)
            await ground.until(lambda: ground.phases(order))
            after = await ground.send_command(Idle())
            await ground.until(lambda: ground.result(after))
            result = ground.result(order)
            assert result is not None
            assert result.outcome is Outcome.SUPERSEDED
        assert not any(isinstance(one, Evidence) for one in ground.reports)

    play(story, node)


def test_a_step_that_it_does_not_have_is_refused_in_words() -> None:
    node = MachineFixture()

    async def story(ground: AgentWorld) -> None:
        node.prepare(ground.fake_machine)
        async with ground.agent():
            order = await ground.send_command(Validate(label="d-2", steps=("driver", "nccl")))
            await ground.until(lambda: ground.result(order))
            result = ground.result(order)
            assert result is not None
            assert (result.outcome, result.code) == (Outcome.FAILED, "unknown-step")
            assert "nccl" in result.message

    play(story, node)


def taken(phase: str, *, outcome: str = "", code: str = "") -> CommandEvent:
    return CommandEvent(
        epoch=1, token=1, op=1, command="validate", phase=phase, outcome=outcome, code=code
    )


@pytest.mark.parametrize("works", [True, False])
def test_each_command_publishes_its_events_once(works: bool) -> None:
    node = MachineFixture()

    async def story(ground: AgentWorld) -> None:
        node.prepare(ground.fake_machine)
        node.library = node.library if works else None
        async with ground.agent():
            order = await ground.send_command(ASKED)
            await ground.until(lambda: ground.result(order))
            await ground.clock.sleep(5)
        # Another process takes up the same journal, and has nothing new to tell.
        async with ground.agent():
            await ground.clock.sleep(100)
        began, ended, found = [event.open() for event in ground.events]
        outcome = Outcome.DONE if works else Outcome.FAILED
        step = "" if works else "driver"
        assert began == taken("started")
        assert ended == taken("finished", outcome=outcome.value, code=step)
        assert found == EvidenceEvent(token=1, op=1, label="d-2", passed=works, failed_step=step)
        assert len({event.id for event in ground.events}) == 3
        assert {(event.node, event.node_uid, event.writer) for event in ground.events} == {
            (NODE, UID, Writer.VALIDATOR)
        }
        assert ground.events[0].message == "validate 1.1 started"
        words = f"driver {VERSION} is proven" if works else "the driver is not proven: "
        assert ground.events[2].message.startswith(words)

    play(story, node)


def test_a_refused_command_publishes_its_reason() -> None:
    node = MachineFixture()

    async def story(ground: AgentWorld) -> None:
        node.prepare(ground.fake_machine)
        async with ground.agent():
            await ground.send_command(ASKED, boot="another")
            await ground.until(lambda: ground.events)
        (event,) = ground.events
        assert event.open() == taken("refused", code="other-boot")
        assert event.message.startswith("validate 1.1 refused: other-boot: ")

    play(story, node)
