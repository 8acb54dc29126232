"""Preflight and holders: each finding names an obstacle and its remedy."""

from collections.abc import Callable

import pytest

from libs.contracts.commands import HoldersCheck, PreflightCheck
from libs.contracts.facts import Facts
from libs.contracts.reports import Finding, Holders, Preflight, Usage
from libs.host import gate
from libs.host.gate import GateAnswer
from services.driver.node import checks
from tests.builders.fake_machine import FakeMachine
from tests.builders.machine_files import NVSWITCH, add_program, put, put_device
from tests.unit.driver.node.world import World, in_world, play

JOB = "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
DRIVER = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def findings_on(
    prepare: Callable[[FakeMachine], object], removes: tuple[str, ...] = (), *, artefact: str = ""
) -> list[Finding]:
    """Return what a preflight finds on a prepared machine."""
    answers: list[Preflight] = []

    async def story(world: World) -> None:
        prepare(world.machine)
        async with world.agent():
            await world.send_check(
                PreflightCheck(label="d-2", removes_pods=removes, artefact_digest=artefact)
            )
            await world.until(lambda: world.reported(Preflight))
        answers.extend(world.reported(Preflight))

    play(story)
    assert {(answer.check, answer.label) for answer in answers} == {("c-1", "d-2")}
    return list(answers[-1].findings)


def enable_secure_boot(machine: FakeMachine) -> None:
    put(machine.root, SECURE_BOOT, "\x06\x00\x00\x00\x01")


def start_xorg(machine: FakeMachine) -> None:
    machine.add_process(900, "", "/dev/nvidia0", comm="Xorg")


def start_daemon_of_the_machine(machine: FakeMachine) -> None:
    machine.add_process(901, "", "/dev/nvidiactl", "/dev/nvidia0", comm="nvidia-persiste")
    put(machine.root, "/proc/901/cgroup", "0::/system.slice/nvidia-persistenced.service\n")


def start_daemon_in_another_pod(machine: FakeMachine) -> None:
    machine.add_process(902, JOB, "/dev/nvidia0", comm="nvidia-persiste")


def start_job(machine: FakeMachine) -> None:
    machine.add_process(4711, JOB, "/dev/nvidia0")


def install_driver(machine: FakeMachine) -> None:
    machine.load_driver("550.54")
    add_program(machine.root, "/usr/bin/nvidia-smi")


def admit_driver(machine: FakeMachine) -> None:
    gate.put_answer(machine.tree, GateAnswer(pod_uid=DRIVER, label="d-1", at=1.0))
    machine.add_process(1, DRIVER, "/dev/nvidiactl", comm="nvidia-persistenced")


Prepare = Callable[[FakeMachine], object]
OBSTACLES: dict[str, tuple[Prepare, str, str, str]] = {
    "nouveau is loaded": (
        lambda machine: machine.set_modules("nouveau"),
        *("nouveau", "nouveau is loaded", "blacklist nouveau"),
    ),
    "Secure Boot": (enable_secure_boot, "secure-boot", "Secure Boot is on", "enrol the key"),
    "a process in no pod": (
        *(start_xorg, "process", "Xorg (pid 900) has /dev/nvidia0 open and is in no pod"),
        "end process 900 on the machine",
    ),
    "a service of the machine": (
        *(start_daemon_of_the_machine, "process"),
        "nvidia-persiste (pid 901) has /dev/nvidia0, /dev/nvidiactl open and is in no pod",
        "stop and disable nvidia-persistenced.service, which it belongs to, or end process 901",
    ),
    "a pod": (start_job, "pod", JOB, "end the pod"),
    "a daemon in another pod": (
        *(start_daemon_in_another_pod, "pod"),
        *(f"nvidia-persiste (pid 902, pod {JOB}) has /dev/nvidia0 open", "end the pod"),
    ),
    "a driver of the machine": (
        *(install_driver, "host-driver", "is installed on this machine"),
        "nvidia.com/gpu.deploy.driver=pre-installed",
    ),
}
"""What is on a machine; code, message and remedy of what is found."""


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_each_obstacle_has_a_finding(obstacle: str) -> None:
    prepare, code, message, remedy = OBSTACLES[obstacle]
    (finding,) = findings_on(prepare)
    assert finding.code == code
    assert message in finding.message
    assert remedy in finding.remedy


def add_switch(machine: FakeMachine) -> None:
    put_device(machine.root, "0000:01:00.0", NVSWITCH)


def manage_switches_through_a_nic(machine: FakeMachine) -> None:
    put(machine.root, "/sys/class/infiniband/mlx5_0/device/vpd", "SW_MNG")


@pytest.mark.parametrize("prepare", [add_switch, manage_switches_through_a_nic])
def test_a_machine_with_nvswitches_takes_no_driver_on_the_host(prepare: Prepare) -> None:
    assert findings_on(prepare) == []
    found = findings_on(prepare, artefact="sha256:" + "0" * 64)
    (finding,) = (each for each in found if each.code == "fabric-manager")
    assert "NVSwitches" in finding.message
    assert "pre-installed" in finding.remedy


def test_a_full_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FREE", 1 << 80)
    (finding,) = findings_on(lambda machine: put(machine.root, "/var/lib/x", ""))
    assert finding.code == "disk"


@pytest.mark.parametrize("secure_boot", [False, True])
def test_a_driver_that_is_loaded_is_no_obstacle(secure_boot: bool) -> None:
    def prepare(machine: FakeMachine) -> None:
        machine.load_driver("550.54")
        if secure_boot:
            enable_secure_boot(machine)

    assert findings_on(prepare) == []


@pytest.mark.parametrize(("prepare", "removes"), [(admit_driver, ()), (start_job, (JOB,))])
def test_pods_that_the_upgrade_removes_are_no_obstacles(
    prepare: Prepare, removes: tuple[str, ...]
) -> None:
    assert findings_on(prepare, removes) == []


@in_world
async def test_holders_of_the_devices_are_listed(world: World) -> None:
    start_job(world.machine)
    async with world.agent():
        await world.send_check(HoldersCheck())
        await world.until(lambda: world.reported(Holders))
    (answer,) = set(world.reported(Holders))
    assert answer.check == "c-1"
    assert [(holder.pid, holder.pod_uid) for holder in answer.holders] == [(4711, JOB)]


@in_world
async def test_driver_and_usage_are_reported_when_they_change(world: World) -> None:
    machine = world.machine
    start_job(machine)
    machine.add_process(4712, JOB, "/dev/nvidia1")
    start_xorg(machine)
    async with world.agent():
        await world.clock.sleep(20)
        machine.load_driver("570.86.15")
        machine.remove_process(900)
        await world.clock.sleep(20)
        add_program(machine.root, "/usr/bin/nvidia-smi")
        await world.clock.sleep(20)
    drivers = [facts.driver for facts in world.reported(Facts)]
    assert [driver and driver.preinstalled for driver in drivers] == [None, False, True]
    assert [driver and driver.version for driver in drivers] == [None, *["570.86.15"] * 2]
    usages = world.reported(Usage)
    assert [usage.host_processes for usage in usages] == [1, 0]
    assert [(pod.pod_uid, pod.processes) for pod in usages[-1].pods] == [(JOB, 2)]
