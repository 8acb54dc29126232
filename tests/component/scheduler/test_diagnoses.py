"""Each named diagnosis, from the machine to evidence, `why`, condition and metric."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.bus.reports import ReportCache
from libs.contracts.diagnoses import MEANINGS, NOTES, Diagnosis
from libs.contracts.gpus import GpuProblem
from libs.contracts.identities import Writer
from libs.contracts.queries import WhyAnswer
from libs.contracts.reports import Evidence, StateKind, named_diagnoses
from libs.host.cuda.port import CudaProblem
from libs.host.runtimes.common import HANDLERS
from libs.host.runtimes.port import RestartRefused, RuntimeStatus
from libs.testing.machines.base_files import PLAIN
from libs.testing.machines.machine import SimulatedMachine
from tests.component.processes import Process
from tests.component.scheduler.world import DEPLOYED, OLD, POLICY, POOL, World, in_world
from tests.unit.policy.situations import node

NAME = "sluice_validator_node_diagnosis"


class OtherRuntime:
    """A container runtime that has no handlers of ours, and gets none from us."""

    def __init__(self) -> None:
        self.handlers = frozenset[str]()
        self.starts = 1

    def start_again(self, handlers: Iterable[str]) -> None:
        """Start with the configuration that a person wrote."""
        self.handlers = frozenset(handlers)
        self.starts += 1

    def instance(self) -> object:
        return self.starts

    def status(self) -> RuntimeStatus:
        return RuntimeStatus(name="another", handlers=self.handlers, reads_cdi=True, pid=7)

    def stop(self, pid: int) -> None:
        raise RestartRefused("it is not to be restarted")

    def restart_unit(self, unit: str) -> None:
        raise RestartRefused("it is not to be restarted")


Provoke = Callable[[SimulatedMachine], object]
Begin = Callable[[World, Provoke], Awaitable[None]]


def diagnoses(validator: Process) -> dict[str, str]:
    """Return the severity of each diagnosis on the page of metrics."""
    families = text_string_to_metric_families(validator.metrics.render().decode())
    samples = [sample for each in families for sample in each.samples if sample.name == NAME]
    assert {(sample.labels["node"], sample.labels["pool"]) for sample in samples} <= {("a", POOL)}
    return {sample.labels["diagnosis"]: sample.labels["severity"] for sample in samples}


async def evidence(world: World) -> Evidence:
    """Return the last evidence that the node's validator reported."""
    bus = world.connect(Writer.SCHEDULER)
    reports = ReportCache(bus=bus, clock=world.sim.clock, cluster="default")
    async with reports:
        await reports.synced()
        report = reports.get("a", Writer.VALIDATOR, StateKind.EVIDENCE)
    bus.kill()
    assert report is not None
    body = report.open()
    assert isinstance(body, Evidence)
    return body


async def conditions(world: World) -> dict[str, str]:
    """Return the message of each condition of the policy that is true."""
    path = f"/apis/nvidia.com/v1/clusterpolicies/{POLICY}"
    policy = msgspec.json.decode(await world.kube.request("GET", path))
    found = policy["status"]["conditions"]
    return {each["type"]: each["message"] for each in found if each["status"] == "True"}


async def check_named(world: World, validator: Process, diagnosis: Diagnosis) -> WhyAnswer:
    """Check that evidence, `why`, condition and metric name this and nothing else."""
    found = await evidence(world)
    why = await world.why("a")
    meaning = ": ".join(MEANINGS[diagnosis])
    message = (await conditions(world)).get("Diagnosed")
    assert named_diagnoses(found, None) == why.diagnoses == (diagnosis,)
    assert message == f"{diagnosis.value} on a: {meaning}"
    severity = "note" if diagnosis in NOTES else "failure"
    assert diagnoses(validator) == {diagnosis.value: severity}
    return why


async def provoke_failure(world: World, provoke: Provoke, *, end: str = "upgrade-failed") -> None:
    """Let the first upgrade of a node fail."""
    await world.install_fleet("a")
    provoke(world.machines["a"])
    world.start(Writer.DRIVER_CLUSTER)
    world.start()
    await world.until_state("a", end)


async def provoke_note(world: World, provoke: Provoke) -> None:
    """Let the first upgrade of a node succeed."""
    await provoke_failure(world, provoke, end="upgrade-done")


async def provoke_handler(world: World, provoke: Provoke) -> None:
    """Let a node begin with a container runtime that Sluice does not configure."""
    await world.install()
    machine = world.add_machine("a", labels={**node("a").labels, **DEPLOYED}, gpus=2)
    machine.runtime = OtherRuntime()
    provoke(machine)
    await start(world)
    await world.wait_until_done("a")


async def provoke_nouveau(world: World, provoke: Provoke) -> None:
    """Let a node begin with another driver, which excludes ours."""
    await world.install()
    labels = {**node("a").labels, **DEPLOYED}
    system = msgspec.structs.replace(PLAIN, nouveau=True)
    provoke(world.add_machine("a", labels=labels, gpus=2, system=system))
    await start(world)


async def start(world: World) -> None:
    """Start the agents of a machine, the services and the first upgrade."""
    await world.sleep(2)
    await world.start_agents("a")
    await world.apply_policy(OLD)
    world.start(Writer.DRIVER_CLUSTER)
    world.start()


def lose_fabric_manager(machine: SimulatedMachine) -> None:
    machine.faults.add_switches(4)
    machine.cuda.problems.update({gpu.uuid: CudaProblem.NOT_READY for gpu in machine.divided})


def refuse(text: str) -> Provoke:
    """The kernel of the machine loads no module, and says this."""
    return lambda machine: machine.faults.refuse_modules(text)


def leave_alone(machine: SimulatedMachine) -> None:
    del machine


RESTARTED = "driver-start: the driver container restarted 3 times "
STORIES: Final[Mapping[Diagnosis, tuple[Begin, Provoke, str]]] = {
    Diagnosis.NOUVEAU: (
        provoke_nouveau,
        leave_alone,
        "preflight check failed: the open driver nouveau is loaded",
    ),
    Diagnosis.SECURE_BOOT: (
        provoke_failure,
        refuse("nvidia: Loading of unsigned module is rejected"),
        f"{RESTARTED}(the kernel loads no module",
    ),
    Diagnosis.OTHER_KERNEL: (
        provoke_failure,
        refuse("nvidia: version magic '6.8.0-45 SMP' should be '6.8.0-48 SMP'"),
        "a module of the driver, because it was built for another kernel: install the headers",
    ),
    Diagnosis.MISSING_SYMBOL: (
        provoke_failure,
        refuse("nvidia: Unknown symbol drm_gem_object_free (err -2)"),
        f"{RESTARTED}(the kernel lacks a symbol",
    ),
    Diagnosis.NO_GPU: (
        provoke_failure,
        refuse("NVRM: No NVIDIA GPU found."),
        f"{RESTARTED}(the driver found no GPU",
    ),
    Diagnosis.VERSION_MISMATCH: (
        provoke_failure,
        lambda machine: machine.faults.replace_library("550.54"),
        "validation: driver: NVML is of driver 550.54, but the kernel has 570.86.15",
    ),
    Diagnosis.NO_DEVICE_FILES: (
        provoke_failure,
        lambda machine: machine.faults.break_library(GpuProblem.NO_DEVICE_FILES),
        "validation: driver: NVML cannot be used: the driver is loaded, but /dev/nvidiactl",
    ),
    Diagnosis.FABRIC_MANAGER: (provoke_failure, lose_fabric_manager, "validation: cuda: GPU-"),
    Diagnosis.RUNTIME_HANDLER: (provoke_handler, leave_alone, ""),
    Diagnosis.SHARED_MEMORY: (provoke_note, lambda each: each.faults.remove_shared_memory(), ""),
    Diagnosis.IOMMU: (provoke_note, lambda machine: machine.faults.translate_copies(), ""),
    Diagnosis.ACS: (provoke_note, lambda machine: machine.faults.redirect_copies(), ""),
}
"""By diagnosis: how it comes about, and the wait of its node; empty: the node is done."""


def test_every_diagnosis_has_a_story() -> None:
    assert set(STORIES) == set(Diagnosis) == set(MEANINGS)


@pytest.mark.parametrize("diagnosis", STORIES)
@in_world
async def test_a_diagnosis_is_in_evidence_why_condition_and_metric(
    world: World, diagnosis: Diagnosis
) -> None:
    begin, provoke, detail = STORIES[diagnosis]
    validator = world.start(Writer.VALIDATOR_CLUSTER)
    await begin(world, provoke)
    await world.sleep(60)
    why = await check_named(world, validator, diagnosis)
    assert (why.wait is None) == why.in_place == (not detail)
    if why.wait is None:
        found = await world.evidence("a")
        assert (found.passed, found.notes) == (True, (diagnosis,))
    else:
        assert detail in why.wait.detail
    if begin is provoke_failure:
        cause = (await world.record("a")).cause
        assert detail in cause
        assert f"a: {cause[:100]}" in (await conditions(world))["Error"]


@in_world
async def test_a_runtime_that_a_person_has_configured_is_named_no_more(world: World) -> None:
    validator = world.start(Writer.VALIDATOR_CLUSTER)
    await provoke_handler(world, leave_alone)
    await world.sleep(60)
    why = await check_named(world, validator, Diagnosis.RUNTIME_HANDLER)
    assert why.container_runtime
    runtime = world.machines["a"].runtime
    assert isinstance(runtime, OtherRuntime)
    runtime.start_again(HANDLERS)
    await world.sleep(60)
    why = await world.why("a")
    assert (why.container_runtime, why.diagnoses) == ("", ())
    assert "Diagnosed" not in await conditions(world)
    assert diagnoses(validator) == {}
