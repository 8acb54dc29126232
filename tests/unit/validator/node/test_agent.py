"""The validator agent: evidence names exactly what was proven; failures are explained."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Order, Quiesce, Validate
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.events import CommandEvent, EvidenceEvent
from libs.contracts.facts import Mig
from libs.contracts.gpus import FabricState, GpuIdentity, GpuProblem
from libs.contracts.identities import Writer
from libs.contracts.reports import Evidence, Outcome, Progress, Result
from libs.host import driver_files
from libs.host.cdi import published
from libs.host.cdi.spec import Device, DeviceNode, Edits, Mount, make_spec
from libs.host.cuda.port import CudaProblem
from libs.host.diagnosing import SHARED_MEMORY
from libs.host.gpus.port import GpusUnavailable
from libs.policy.mig.geometry import found_geometry, mig_digest
from libs.testing.simulation import Sim
from services.agent_frame import Given
from services.validator.node import agent
from services.validator.node.agent import ValidatorSettings
from services.validator.node.obstacle_watch import INTERVAL
from services.validator.node.status_files import FOLDER
from services.validator.node.validation import RETRY_INTERVAL, TRIES
from tests.builders import agent_world
from tests.builders.agent_world import NODE, UID, AgentWorld, in_world_of
from tests.builders.fake_machine import BOOT, CONTAINER, KERNEL, VERSION, gpu
from tests.builders.machine_files import NVSWITCH, put, put_device

POD = "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
BOOTED = 1_790_000_000
STARTED = BOOTED + 500.25
REQUEST = Validate(label="d-2", install_digest="i-2", pod_uid=POD, started=BOOTED + 500.0)
DIVIDED = replace(
    gpu(1), mig_capable=True, mig_mode=True, migs=(Mig(uuid="MIG-1", profile="7g.80gb"),)
)


class World(AgentWorld):
    """A machine with two GPUs and a working driver, unless a test changes it."""

    WRITER = Writer.VALIDATOR
    with_toolkit = False

    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        self.driver.set_version(VERSION)
        self.machine.load_driver(VERSION)
        put(root, driver_files.STATE, "i-2")
        put(root, "/proc/stat", f"cpu 1 2 3\nbtime {BOOTED}\n")
        self.start_driver_container()
        for number in (0, 1):
            put_device(root, f"0000:0{number}:00.0")

    def start_driver_container(self) -> None:
        self.machine.add_process(100, POD, comm="nvidia-driver")
        fields = " ".join(["S", *["0"] * 18, "50025", *["0"] * 10])
        put(self.machine.root, "/proc/100/stat", f"100 (nvidia (driver) x) {fields}")

    async def run_agent(self, given: Given) -> None:
        settings = ValidatorSettings(node=NODE, node_uid=UID, toolkit=self.with_toolkit)
        await agent.run(settings, given)


Change = Callable[[World], object]


in_world = in_world_of(World)


def validate(change: Change | None = None, request: Validate = REQUEST) -> tuple[Evidence, Result]:
    """Return evidence and result of a validation on a machine with this change."""
    results = list[tuple[Evidence, Result]]()

    async def story(world: World) -> None:
        if change is not None:
            change(world)
        async with world.agent():
            order = await world.send_command(request)
            result = await world.wait_for_result(order)
            (evidence,) = {each for each in world.reported(Evidence) if each.was_asked}
            assert world.reports.index(evidence) < world.reports.index(result)
            assert evidence.order == order == Order(1, 1)
            results.append((evidence, result))
        assert world.driver.held == 0

    agent_world.play(story, World)
    return results[0]


def end_container(world: World) -> None:
    world.machine.remove_process(100)


def unload(world: World) -> None:
    world.machine.set_modules()


def install_another(world: World) -> None:
    put(world.machine.root, driver_files.STATE, "i-1")


def remove(path: str) -> Change:
    return lambda world: world.machine.tree.remove(path)


def make_unreadable(path: str) -> Change:
    def change(world: World) -> None:
        world.machine.tree.remove(path)
        os.mkfifo(world.machine.root / path[1:])

    return change


def load_at(seconds: float) -> Change:
    return lambda world: os.utime(
        world.machine.root / "sys/module/nvidia", (seconds, seconds), follow_symlinks=False
    )


def no_change(_world: World) -> None:
    pass


def named(container_id: str, *, started: float) -> Validate:
    """Return a request for this container of the pod."""
    return replace(REQUEST, container_id=container_id, started=started)


def load_library(version: str) -> Change:
    return lambda world: world.driver.set_version(version)


def set_gpus(*indices: int, problem: GpuProblem | None = None) -> Change:
    """Set the GPUs that the driver has; the last one may hang."""
    gpus = [gpu(index) for index in indices]
    gpus[-1:] = [replace(each, problem=problem) for each in gpus[-1:]]
    return lambda world: world.driver.gpus.change(gpus)


def test_the_evidence_names_exactly_what_was_proven() -> None:
    evidence, result = validate()
    assert result.outcome is Outcome.DONE
    assert [(step.name, step.passed, step.message) for step in evidence.steps] == [
        ("driver", True, ""),
        ("gpus", True, "2 of 2 GPUs work"),
        ("cuda", True, "2 of 2 GPUs or MIG devices compute right"),
    ]
    assert replace(evidence, steps=(), at=0.0) == Evidence(
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


def test_the_evidence_names_the_geometry_of_the_gpus() -> None:
    evidence, _ = validate(lambda world: world.driver.gpus.change([gpu(0), DIVIDED]))
    assert evidence.passed
    assert evidence.mig_digest == mig_digest(found_geometry([DIVIDED])) != "none"


def test_without_a_requested_start_that_of_the_process_counts() -> None:
    evidence, _ = validate(request=replace(REQUEST, started=0.0))
    assert evidence.passed
    assert evidence.driver_started == STARTED


def test_a_driver_on_the_host_is_named_by_the_load_of_its_module() -> None:
    evidence, _ = validate(load_at(BOOTED + 9.25), Validate(label="d-2"))
    assert evidence.passed
    assert (evidence.driver_pod_uid, evidence.driver_started) == ("", BOOTED + 9.25)


def test_the_kernel_log_is_quoted_where_the_driver_lacks_a_gpu() -> None:
    def change(world: World) -> None:
        set_gpus(0)(world)
        said = "3,910,7000000,-;NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x61:0x56:1603)\n"
        put(world.machine.root, "/dev/kmsg", said)

    evidence, _ = validate(change)
    assert "says of it: RmInitAdapter failed! (0x61:0x56:1603)" in evidence.steps[1].message


def test_a_gpu_that_had_failed_before_the_operation_does_not_hinder_the_proof() -> None:
    failed_before = (GpuIdentity(uuid="GPU-1", pci="0000:01:00.0"),)
    request = replace(REQUEST, failed_gpus=failed_before)
    evidence, result = validate(set_gpus(0, 1, problem=GpuProblem.LOST), request)
    assert evidence.passed
    assert result.outcome is Outcome.DONE
    text = "1 of 2 GPUs work; failed before this operation: GPU-1 at 00000000:01:00.0"
    assert evidence.steps[1].message.startswith(text)


def refuse_module(record: str) -> Change:
    def change(world: World) -> None:
        unload(world)
        put(world.machine.root, "/dev/kmsg", f"4,900,5000000,-;nvidia: {record}\n")

    return change


def load_nouveau(world: World) -> None:
    world.machine.set_modules("nouveau")


def break_cuda_of_a_switched_machine(problem: CudaProblem) -> Change:
    def change(world: World) -> None:
        put_device(world.machine.root, "0000:09:00.0", NVSWITCH)
        gpus = [gpu(0, fabric_state=FabricState.IN_PROGRESS), gpu(1)]
        world.driver.gpus.change(gpus)
        world.machine.cuda.problems["GPU-0"] = problem

    return change


def break_cuda(problem: CudaProblem, *uuids: str) -> Change:
    return lambda world: world.machine.cuda.problems.update(dict.fromkeys(uuids, problem))


def divide_and_break_an_instance(world: World) -> None:
    world.driver.gpus.change([gpu(0), DIVIDED])
    break_cuda(CudaProblem.NOT_READY, "MIG-1")(world)


def fail_open(problem: GpuProblem) -> Change:
    def fail() -> None:
        raise GpusUnavailable(problem)

    def change(world: World) -> None:
        world.driver.on_open = fail

    return change


def test_notes_do_not_hinder_a_proof() -> None:
    evidence, _ = validate(lambda world: world.machine.tree.remove_folder(SHARED_MEMORY))
    assert (evidence.passed, evidence.notes) == (True, (Diagnosis.SHARED_MEMORY,))
    assert all(step.diagnosis is None for step in evidence.steps)


def test_nothing_is_computed_on_a_gpu_that_had_failed_before() -> None:
    def change(world: World) -> None:
        set_gpus(0, 1, problem=GpuProblem.LOST)(world)
        break_cuda(CudaProblem.NOT_FOUND, "GPU-1")(world)

    request = replace(REQUEST, failed_gpus=(GpuIdentity(uuid="GPU-1"),))
    evidence, _ = validate(change, request)
    assert evidence.passed


def test_a_gpu_that_a_job_has_for_itself_is_no_failure() -> None:
    evidence, _ = validate(break_cuda(CudaProblem.IN_USE, "GPU-1"))
    assert evidence.passed
    assert evidence.steps[2].message == (
        "1 of 2 GPUs or MIG devices compute right; in use by other processes, and not tried: 1"
    )


LIBRARY = "/run/nvidia/driver/usr/lib64/libcuda.so.570.86.15"


def put_cdi_spec(world: World, *uuids: str) -> None:
    """Publish a spec with these GPUs, and turn the step on."""
    world.with_toolkit = True
    mount = Mount(host_path=LIBRARY, container_path="/usr/lib64/libcuda.so.1", options=("ro",))
    put(world.machine.root, LIBRARY, "\x7fELF")
    put(world.machine.root, "/dev/nvidia0", "")
    node = Edits(device_nodes=(DeviceNode(path="/dev/nvidia0"),))
    devices = tuple(Device(name=uuid, container_edits=node) for uuid in uuids)
    spec = make_spec(published.GPU_KIND, common=Edits(mounts=(mount,)), devices=devices)
    published.put(world.machine.tree, published.GPU_FILE, spec)


def test_containers_can_have_the_gpus() -> None:
    evidence, _ = validate(lambda world: put_cdi_spec(world, "GPU-0", "GPU-1"))
    assert [(step.name, step.passed, step.message) for step in evidence.steps] == [
        ("driver", True, ""),
        ("gpus", True, "2 of 2 GPUs work"),
        ("toolkit", True, "containers can have 2 GPUs or MIG devices"),
        ("cuda", True, "2 of 2 GPUs or MIG devices compute right"),
    ]


def turn_on_toolkit(world: World) -> None:
    world.with_toolkit = True


def name_one_gpu(world: World) -> None:
    put_cdi_spec(world, "GPU-0")


def contradict(world: World) -> None:
    put_cdi_spec(world, "GPU-0", "GPU-1")
    put(world.machine.root, f"{published.FOLDER}/nvidia.yaml", "kind: nvidia.com/gpu\n")


def lose_library(world: World) -> None:
    put_cdi_spec(world, "GPU-0", "GPU-1")
    world.machine.tree.remove(LIBRARY)


def lose_files(world: World) -> None:
    lose_library(world)
    world.machine.tree.remove("/dev/nvidia0")


FAILURES: dict[str, tuple[Change, str, Diagnosis | None, str]] = {
    "a driver container that is not ready": (
        *(remove(driver_files.READY), "driver", None),
        "the driver container is not ready",
    ),
    "no module": (unload, "driver", None, "module nvidia is not loaded"),
    "no driver for NVML": (
        *(load_library(""), "driver", None),
        "NVML cannot be used: no NVIDIA driver is loaded",
    ),
    "a library of another driver": (
        *(load_library("550.54"), "driver", Diagnosis.VERSION_MISMATCH),
        "NVML is of driver 550.54, but the kernel has 570.86.15",
    ),
    "another installation": (install_another, "driver", None, "was installed from i-1"),
    "an unknown installation": (
        *(remove(driver_files.STATE), "driver", None),
        "from an unknown source, but i-2 is wanted",
    ),
    "nouveau": (load_nouveau, "driver", Diagnosis.NOUVEAU, "blacklist nouveau"),
    "an unsigned module": (
        *(refuse_module("Loading of unsigned module is rejected"), "driver"),
        *(Diagnosis.SECURE_BOOT, "enrol the key"),
    ),
    "a module of another kernel": (
        *(refuse_module("version magic '6.8.0-45 SMP' should be '6.8.0-48 SMP'"), "driver"),
        *(Diagnosis.OTHER_KERNEL, "built for another kernel"),
    ),
    "no device files": (
        *(fail_open(GpuProblem.NO_DEVICE_FILES), "driver", Diagnosis.NO_DEVICE_FILES),
        "/dev/nvidiactl is missing",
    ),
    "a GPU that the driver lacks": (
        *(set_gpus(0), "gpus", None),
        "failed in this operation: the GPU at 0000:01:00.0",
    ),
    "no GPU at all": (
        *(set_gpus(), "gpus", None),
        "the GPU at 0000:00:00.0 (the driver does not have the GPU",
    ),
    "a hung GPU": (
        *(set_gpus(0, 1, problem=GpuProblem.HUNG), "gpus", None),
        "the GPU does not answer",
    ),
    "a lost GPU": (
        *(set_gpus(0, 1, problem=GpuProblem.LOST), "gpus", None),
        "the GPU fell off the bus",
    ),
    "no CDI spec": (
        *(turn_on_toolkit, "toolkit", None),
        "containers can have no GPU, because /var/run/cdi/nvidia.com-gpu.json",
    ),
    "CDI specs that contradict": (contradict, "toolkit", None, "containers can have no GPU"),
    "a GPU in no CDI spec": (
        *(name_one_gpu, "toolkit", None),
        "containers cannot have GPU-1, which /var/run/cdi/nvidia.com-gpu.json",
    ),
    "a library that is gone": (
        *(lose_library, "toolkit", None),
        f"containers with a GPU do not start, because {LIBRARY} of",
    ),
    "a device file that is gone": (
        *(lose_files, "toolkit", None),
        "because /dev/nvidia0 and 1 more of",
    ),
    "a fabric that is not joined": (
        *(break_cuda_of_a_switched_machine(CudaProblem.NOT_READY), "cuda"),
        *(Diagnosis.FABRIC_MANAGER, "NVSwitches: 1; GPUs outside of the fabric: 1"),
    ),
    "no device file for CUDA": (
        *(break_cuda_of_a_switched_machine(CudaProblem.NO_UVM_DEVICE), "cuda"),
        *(Diagnosis.NO_DEVICE_FILES, "/dev/nvidia-uvm is missing"),
    ),
    "CUDA that is not ready without NVSwitches": (
        *(break_cuda(CudaProblem.NOT_READY, "GPU-0"), "cuda", None),
        "GPU-0: the system is not ready for CUDA",
    ),
    "a GPU that computes wrong": (
        *(break_cuda(CudaProblem.WRONG_RESULT, "GPU-1"), "cuda", None),
        "GPU-1: the GPU computes wrong results: take it out of service and replace it",
    ),
    "an instance of a divided GPU": (
        *(divide_and_break_an_instance, "cuda", None),
        "MIG-1: the system is not ready for CUDA",
    ),
}
"""What is wrong with a machine: the step that fails, its diagnosis, and a part of its message."""


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_step_ends_the_validation_and_says_why(failure: str) -> None:
    change, step, diagnosis, message = FAILURES[failure]
    evidence, result = validate(change)
    assert not evidence.passed
    names = list(dict.fromkeys(("driver", "gpus", step)))[: 1 if step == "driver" else None]
    assert [each.name for each in evidence.steps] == names
    *passed, failed = evidence.steps
    assert all(each.passed for each in passed)
    assert (failed.passed, failed.diagnosis) == (False, diagnosis)
    assert message in failed.message
    assert (result.outcome, result.code, result.message) == (Outcome.FAILED, step, failed.message)


def files(world: World) -> dict[str, str]:
    tree = world.machine.tree
    names = (name for name in tree.names(FOLDER) if not name.startswith("."))
    return {name: tree.read_text(f"{FOLDER}/{name}") or "" for name in names}


@in_world
async def test_other_pods_are_told_what_is_proven(world: World) -> None:
    async with world.agent():
        await world.carry_out(REQUEST)
        proven = {
            "driver-ready": "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n"
            "DRIVER_ROOT_CTR_PATH=/driver-root\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n",
            "cuda-ready": "",
        }
        assert files(world) == proven
        break_cuda(CudaProblem.NOT_READY, "GPU-0")(world)
        await world.carry_out(REQUEST)
        assert files(world).keys() == {"driver-ready"}
        await world.carry_out(Quiesce())
        assert files(world) == {}


@in_world
async def test_other_pods_are_told_of_modules_beside_a_proven_driver(world: World) -> None:
    """A container beside the driver's loads such a module, often after the validation."""
    tree = world.machine.tree
    names = {"nvidia-fs-ready", "gdrcopy-ready", "nvidia-peermem-ready"}
    tree.make_folders("/sys/module/nvidia_fs")
    async with world.agent():
        await world.clock.sleep(60.0)
        assert not names & files(world).keys()
        await world.carry_out(REQUEST)
        assert names & files(world).keys() == {"nvidia-fs-ready"}
        tree.remove_folder("/sys/module/nvidia_fs")
        for module in ("gdrdrv", "nvidia_peermem"):
            tree.make_folders(f"/sys/module/{module}")
        await world.until(lambda: names <= {*files(world), "nvidia-fs-ready"})
        await world.until(lambda: "nvidia-fs-ready" not in files(world))
        await world.carry_out(Quiesce())
        await world.clock.sleep(60.0)
        assert files(world) == {}


class WorldWithToolkit(World):
    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        put_cdi_spec(self, "GPU-0", "GPU-1")


@in_world_of(WorldWithToolkit)
async def test_other_pods_are_told_that_containers_can_have_gpus(
    world: WorldWithToolkit,
) -> None:
    async with world.agent():
        await world.carry_out(REQUEST)
        assert files(world).keys() == {"driver-ready", "toolkit-ready", "cuda-ready"}
        lose_library(world)
        await world.carry_out(REQUEST)
        assert files(world).keys() == {"driver-ready"}


@in_world
async def test_a_driver_on_the_host_and_one_with_device_files_of_its_own(world: World) -> None:
    load_at(BOOTED + 9.25)(world)
    async with world.agent():
        await world.carry_out(Validate(label="d-2"))
        assert files(world)["driver-ready"].startswith(
            "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\n"
        )
        world.machine.tree.make_folders("/run/nvidia/driver/dev")
        await world.carry_out(REQUEST)
        assert files(world)["driver-ready"].endswith(
            "NVIDIA_DEV_ROOT=/run/nvidia/driver\nDEV_ROOT_CTR_PATH=/driver-root\n"
        )


@in_world
async def test_a_folder_that_cannot_be_written_hinders_no_proof(world: World) -> None:
    world.machine.tree.remove(driver_files.READY)
    world.machine.tree.remove_folder(FOLDER)
    put(world.machine.root, FOLDER, "not a folder")
    load_at(BOOTED + 9.25)(world)
    async with world.agent():
        result = await world.carry_out(Validate(label="d-2"))
        assert result.outcome is Outcome.DONE


@in_world
async def test_a_gpu_that_an_earlier_validation_saw_is_missed(world: World) -> None:
    async with world.agent():
        await world.carry_out(REQUEST)
        shutil.rmtree(world.machine.root / "sys/bus/pci/devices/0000:01:00.0")
        set_gpus(0)(world)
        result = await world.carry_out(REQUEST)
        assert (result.outcome, result.code) == (Outcome.FAILED, "gpus")
        assert (
            "GPU-1 at 00000000:01:00.0 (the GPU cannot be used: the driver lists it no more"
            in result.message
        )


@pytest.mark.parametrize("off", [-3600.0, -1.5, 0.0, 1.5, 3600.0])
def test_a_container_is_recognized_by_its_id_whatever_the_clocks_say(off: float) -> None:
    request = named(CONTAINER, started=STARTED + off)
    evidence, _ = validate(request=request)
    assert evidence.passed
    assert evidence.driver_started == request.started


@pytest.mark.parametrize("off", [-1.9, -1.0, 0.0, 1.0, 1.9])
def test_starts_cut_to_whole_seconds_are_the_same_where_no_id_is_known(off: float) -> None:
    evidence, _ = validate(request=named("", started=STARTED + off))
    assert evidence.passed


UNDECIDED: list[tuple[Change, Validate, str]] = [
    (no_change, named("d" * 64, started=STARTED), "another container of the driver pod runs"),
    (no_change, named("", started=STARTED + 2.0), "another container of the driver pod runs"),
    (no_change, named("", started=STARTED - 60.0), "another container of the driver pod runs"),
    (end_container, REQUEST, "it has ended"),
    (remove("/proc/sys/kernel/osrelease"), REQUEST, "the release of the kernel is missing"),
    (make_unreadable("/proc/modules"), REQUEST, "the machine cannot be inspected"),
]


@pytest.mark.parametrize(("change", "request_", "message"), UNDECIDED)
@in_world
async def test_what_cannot_be_decided_yet_uses_up_no_try(
    world: World, change: Change, request_: Validate, message: str
) -> None:
    change(world)
    async with world.agent():
        order = await world.send_command(request_)
        await world.clock.sleep(2 * TRIES * RETRY_INTERVAL)
        assert not [each for each in world.reported(Result) if each.order == order]
        progress = world.reported(Progress)[-1]
        assert (progress.order, progress.phase) == (order, "driver")
        assert message in progress.detail
        await world.send_command(Idle())
        assert (await world.wait_for_result(order)).outcome is Outcome.SUPERSEDED
    assert world.reported(Evidence) == []


@in_world
async def test_a_run_that_appears_later_is_validated(world: World) -> None:
    end_container(world)
    async with world.agent():
        order = await world.send_command(REQUEST)
        await world.clock.sleep(2 * TRIES * RETRY_INTERVAL)
        world.start_driver_container()
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE


@in_world
async def test_missing_gpus_are_waited_for(world: World) -> None:
    set_gpus(0)(world)
    async with world.agent():
        order = await world.send_command(REQUEST)
        await world.until(lambda: world.phases(order))
        set_gpus(0, 1)(world)
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE


@in_world
async def test_a_superseded_validation_ends_without_evidence(world: World) -> None:
    world.driver.set_version("")
    async with world.agent():
        order = await world.send_command(REQUEST)
        await world.until(lambda: world.phases(order))
        await world.carry_out(Idle())
        assert (await world.wait_for_result(order)).outcome is Outcome.SUPERSEDED
    assert world.reported(Evidence) == []


@in_world
async def test_an_unknown_step_is_refused_by_name(world: World) -> None:
    async with world.agent():
        order = await world.send_command(Validate(label="d-2", steps=("driver", "nccl")))
        result = await world.wait_for_result(order)
        assert (result.outcome, result.code) == (Outcome.FAILED, "unknown-step")
        assert "nccl" in result.message


def command_event(phase: str, *, outcome: str = "", code: str = "") -> CommandEvent:
    return CommandEvent(
        epoch=1, token=1, op=1, command="validate", phase=phase, outcome=outcome, code=code
    )


@pytest.mark.parametrize("works", [True, False])
@in_world
async def test_each_command_publishes_its_events_once(world: World, works: bool) -> None:
    world.driver.set_version(VERSION if works else "")
    async with world.agent():
        await world.carry_out(REQUEST)
        await world.clock.sleep(5)
    # A restarted agent with the same journal repeats no event.
    async with world.agent():
        await world.clock.sleep(100)
    started, finished, evidence = [event.open() for event in world.events]
    outcome = Outcome.DONE if works else Outcome.FAILED
    step = "" if works else "driver"
    assert started == command_event("started")
    assert finished == command_event("finished", outcome=outcome.value, code=step)
    assert evidence == EvidenceEvent(token=1, op=1, label="d-2", passed=works, failed_step=step)
    assert len({event.id for event in world.events}) == 3
    assert {(event.node, event.node_uid, event.writer) for event in world.events} == {
        (NODE, UID, Writer.VALIDATOR)
    }
    assert world.events[0].message == "told to validate the driver (command validate 1.1): begun"
    message = f"driver {VERSION} passed validation" if works else "the driver failed validation: "
    assert world.events[2].message.startswith(message)


def unasked(world: World) -> list[Evidence]:
    return [each for each in world.reported(Evidence) if not each.was_asked]


@in_world
async def test_what_keeps_any_driver_from_being_loaded_is_reported_unasked_and_once(
    world: World,
) -> None:
    load_nouveau(world)
    async with world.agent():
        await world.clock.sleep(5 * INTERVAL)
        (evidence,) = unasked(world)
        (step,) = evidence.steps
        assert (step.name, step.passed, step.diagnosis) == ("driver", False, Diagnosis.NOUVEAU)
        assert "blacklist nouveau" in step.message
        assert (evidence.passed, evidence.token, evidence.label) == (False, 0, "")
        assert (evidence.node_uid, evidence.boot_id, evidence.kernel) == (UID, BOOT, KERNEL)


@in_world
async def test_what_a_validation_has_named_is_not_reported_again(
    world: World,
) -> None:
    async with world.agent():
        await world.clock.sleep(INTERVAL / 2)
        load_nouveau(world)
        await world.carry_out(REQUEST)
        asked = [each for each in world.reported(Evidence) if each.was_asked]
        assert {step.diagnosis for step in asked[-1].steps} == {Diagnosis.NOUVEAU}
        await world.clock.sleep(5 * INTERVAL)
        assert unasked(world) == []


@in_world
async def test_a_loaded_driver_is_nothing_to_report(
    world: World,
) -> None:
    async with world.agent():
        await world.clock.sleep(5 * INTERVAL)
        assert world.reported(Evidence) == []
