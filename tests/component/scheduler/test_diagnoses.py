"""Each named diagnosis, from the machine to evidence, `why`, condition and metric."""

from collections.abc import Callable

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.contracts.diagnoses import MEANINGS, Diagnosis
from libs.contracts.gpus import GpuProblem
from libs.contracts.identities import Writer
from libs.contracts.message import decode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.host.cuda.port import CudaProblem
from libs.testing.machines.base_files import PLAIN
from libs.testing.machines.machine import SimulatedMachine
from services.scheduler import resources
from tests.component.processes import AGENTS, Process
from tests.component.scheduler.world import DEPLOYED, OLD, POLICY, POOL, World, play
from tests.unit.policy.situations import node

UNSIGNED = "nvidia: Loading of unsigned module is rejected"
MAGIC = "nvidia: version magic '6.8.0-45 SMP' should be '6.8.0-48 SMP'"
NAME = "sluice_validator_node_diagnosis"


def diagnoses(validator: Process) -> dict[str, str]:
    """Return the severity of each diagnosis on the page of metrics."""
    families = text_string_to_metric_families(validator.metrics.render().decode())
    samples = [sample for each in families for sample in each.samples if sample.name == NAME]
    assert {(sample.labels["node"], sample.labels["pool"]) for sample in samples} <= {("a", POOL)}
    return {sample.labels["diagnosis"]: sample.labels["severity"] for sample in samples}


async def record(world: World) -> NodeRecord:
    view = await world.kube.get(resources.NODES, "a")
    return decode(NodeRecord, view.metadata.annotations[RECORD_ANNOTATION].encode())


async def reason(world: World) -> str:
    wait = (await world.why("a")).wait
    assert wait is not None
    return wait.detail


async def condition(world: World) -> str:
    """Return the message of the policy's condition Error, which is true."""
    path = f"/apis/nvidia.com/v1/clusterpolicies/{POLICY}"
    policy = msgspec.json.decode(await world.kube.request("GET", path))
    conditions = {each["type"]: each for each in policy["status"]["conditions"]}
    assert conditions["Error"]["status"] == "True"
    return conditions["Error"]["message"]


Provoke = Callable[[SimulatedMachine], object]


def lose_fabric_manager(machine: SimulatedMachine) -> None:
    machine.faults.add_switches(4)
    machine.cuda.problems.update({gpu.uuid: CudaProblem.NOT_READY for gpu in machine.divided})


def lose_device_files(machine: SimulatedMachine) -> None:
    machine.faults.break_library(GpuProblem.NO_DEVICE_FILES)


def refuse_unsigned(machine: SimulatedMachine) -> None:
    machine.faults.refuse_modules(UNSIGNED)


def refuse_other_kernel(machine: SimulatedMachine) -> None:
    machine.faults.refuse_modules(MAGIC)


def replace_library(machine: SimulatedMachine) -> None:
    machine.faults.replace_library("550.54")


@pytest.mark.parametrize(
    ("provoke", "diagnosis", "cause"),
    [
        (
            refuse_unsigned,
            Diagnosis.SECURE_BOOT,
            "driver-start: the driver container restarted 3 times (the kernel loads no module",
        ),
        (
            refuse_other_kernel,
            Diagnosis.OTHER_KERNEL,
            "a module of the driver, because it was built for another kernel: install the headers",
        ),
        (
            replace_library,
            Diagnosis.VERSION_MISMATCH,
            "validation: driver: NVML is of driver 550.54, but the kernel has 570.86.15",
        ),
        (
            lose_device_files,
            Diagnosis.NO_DEVICE_FILES,
            "validation: driver: NVML cannot be used: the driver is loaded, but /dev/nvidiactl",
        ),
        (lose_fabric_manager, Diagnosis.FABRIC_MANAGER, "validation: cuda: GPU-"),
    ],
)
def test_a_failed_node_has_a_named_diagnosis(
    provoke: Provoke, diagnosis: Diagnosis, cause: str
) -> None:
    async def story(world: World) -> None:
        await world.install_fleet("a")
        provoke(world.machines["a"])
        validator = world.start(Writer.VALIDATOR_CLUSTER)
        world.start(Writer.DRIVER_CLUSTER)
        world.start()
        await world.until_state("a", "upgrade-failed")
        await world.sleep(30)
        found = (await record(world)).cause
        assert cause in found
        assert found in await reason(world)
        assert diagnoses(validator) == {diagnosis.value: "failure"}
        assert f"a: {found[:100]}" in await condition(world)

    play(story)


def test_nouveau_is_named_before_a_driver_is_tried() -> None:
    async def story(world: World) -> None:
        await world.install()
        system = msgspec.structs.replace(PLAIN, nouveau=True)
        labels = {**node("a").labels, **DEPLOYED}
        world.add_machine("a", labels=labels, gpus=2, system=system)
        await world.sleep(2)
        for writer in AGENTS:
            await world.start_agent("a", writer)
        await world.apply_policy(OLD)
        validator = world.start(Writer.VALIDATOR_CLUSTER)
        world.start()
        await world.sleep(60)
        wait = (await world.why("a")).wait
        assert wait is not None
        meaning, remedy = MEANINGS[Diagnosis.NOUVEAU]
        assert (wait.detail, wait.who) == (
            f"preflight check failed: {meaning}",
            f"nouveau: {remedy}",
        )
        assert diagnoses(validator) == {"nouveau": "failure"}

    play(story)


def add_notes(machine: SimulatedMachine) -> None:
    machine.faults.remove_shared_memory()
    machine.faults.translate_copies()
    machine.faults.redirect_copies()


def test_notes_are_shown_of_a_node_that_is_proven() -> None:
    async def story(world: World) -> None:
        await world.install_fleet("a")
        add_notes(world.machines["a"])
        validator = world.start(Writer.VALIDATOR_CLUSTER)
        world.start()
        await world.wait_until_done("a")
        evidence = (await record(world)).evidence
        assert evidence is not None
        notes = (Diagnosis.SHARED_MEMORY, Diagnosis.IOMMU, Diagnosis.ACS)
        assert (evidence.passed, evidence.notes) == (True, notes)
        assert diagnoses(validator) == dict.fromkeys(notes, "note")

    play(story)
