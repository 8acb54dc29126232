"""Preflight and holders: each finding says what stands in the way, and the way out."""

from collections.abc import Callable

import pytest

from libs.contracts.commands import HoldersCheck, PreflightCheck
from libs.contracts.facts import Facts
from libs.contracts.reports import Finding, Holders, Preflight, Usage
from libs.host import gate
from libs.host.gate import GateAnswer
from services.driver.node import checks
from tests.unit.driver.node.world import AgentWorld, play
from tests.unit.fake_machine import FakeMachine
from tests.unit.host.builders import put

JOB = "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
DRIVER = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def found(prepare: Callable[[FakeMachine], object], removes: tuple[str, ...] = ()) -> list[Finding]:
    """What a preflight finds on a machine that was so prepared."""
    answers: list[Preflight] = []

    async def story(ground: AgentWorld) -> None:
        prepare(ground.fake_machine)
        async with ground.agent():
            await ground.send_check(PreflightCheck(label="d-2", removes_pods=removes))
            await ground.until(lambda: any(isinstance(one, Preflight) for one in ground.reports))
        answers.extend(one for one in ground.reports if isinstance(one, Preflight))

    play(story)
    assert {(one.check, one.label) for one in answers} == {("c-1", "d-2")}
    return list(answers[-1].findings)


def test_nothing_stands_in_the_way() -> None:
    assert found(lambda box: box.load_driver("550.54")) == []


def test_nouveau() -> None:
    (finding,) = found(lambda box: box.set_modules("nouveau"))
    assert finding.code == "nouveau"
    assert "blacklist nouveau" in finding.remedy


def test_secure_boot_where_no_driver_was_accepted_yet() -> None:
    def prepare(box: FakeMachine) -> None:
        put(box.root, SECURE_BOOT, "\x06\x00\x00\x00\x01")

    def with_driver(box: FakeMachine) -> None:
        prepare(box)
        box.load_driver("550.54")

    (finding,) = found(prepare)
    assert finding.code == "secure-boot"
    assert found(with_driver) == []


def test_a_disk_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "FREE", 1 << 80)
    (finding,) = found(lambda box: put(box.root, "/var/lib/x", ""))
    assert finding.code == "disk"


def test_a_process_of_the_machine() -> None:
    (finding,) = found(lambda box: box.add_process(900, "", "/dev/nvidia0", comm="Xorg"))
    assert finding.code == "process"
    assert finding.message == "Xorg (pid 900) has /dev/nvidia0 open and is in no pod"
    assert finding.remedy == "end process 900 on the machine"


def test_a_pod_that_the_plan_does_not_remove() -> None:
    def prepare(box: FakeMachine) -> None:
        box.add_process(4711, JOB, "/dev/nvidia0")

    (finding,) = found(prepare)
    assert finding.code == "pod"
    assert JOB in finding.message
    assert found(prepare, removes=(JOB,)) == []


def test_the_driver_itself_is_no_obstacle() -> None:
    def prepare(box: FakeMachine) -> None:
        gate.put_answer(box.tree, GateAnswer(pod_uid=DRIVER, label="d-1", at=1.0))
        box.add_process(1, DRIVER, "/dev/nvidiactl", comm="nvidia-persistenced")

    assert found(prepare) == []


def test_holders_of_the_devices_are_listed() -> None:
    async def story(ground: AgentWorld) -> None:
        ground.fake_machine.add_process(4711, JOB, "/dev/nvidia0")
        async with ground.agent():
            await ground.send_check(HoldersCheck())
            await ground.until(lambda: any(isinstance(one, Holders) for one in ground.reports))
        (answer,) = {one for one in ground.reports if isinstance(one, Holders)}
        assert answer.check == "c-1"
        assert [(one.pid, one.pod_uid) for one in answer.holders] == [(4711, JOB)]

    play(story)


def test_driver_and_usage_are_reported_when_they_change() -> None:
    async def story(ground: AgentWorld) -> None:
        box = ground.fake_machine
        box.add_process(4711, JOB, "/dev/nvidia0")
        box.add_process(4712, JOB, "/dev/nvidia1")
        box.add_process(900, "", "/dev/nvidia0")
        async with ground.agent():
            await ground.clock.sleep(20)
            box.load_driver("570.86.15")
            box.remove_process(900)
            await ground.clock.sleep(20)
        drivers = [one.driver for one in ground.reports if isinstance(one, Facts)]
        assert [one and one.version for one in drivers] == [None, "570.86.15"]
        usages = [one for one in ground.reports if isinstance(one, Usage)]
        assert [one.host_processes for one in usages] == [1, 0]
        assert [(pod.pod_uid, pod.processes) for pod in usages[-1].pods] == [(JOB, 2)]

    play(story)
