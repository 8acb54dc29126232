"""Which driver came with the machine, and which one a container has loaded."""

from pathlib import Path

import pytest

from libs.host import driver_files, gate, host_driver
from libs.host.gate import GateAnswer
from libs.host.tree import Tree
from tests.builders.machine_files import add_program, link, put, tree

LOADED = {"/proc/modules": "nvidia 1 0 - Live 0x0\n"}


def installed(root: Path, program: str = "/usr/bin/nvidia-smi") -> Tree:
    """Return a machine whose own driver is loaded."""
    add_program(root, program)
    return tree(root, LOADED)


@pytest.mark.parametrize(
    "folder",
    [
        *("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib/wsl/lib", "/opt/bin"),
        *("/home/kubernetes/bin/nvidia/bin", "/opt/nvidia/current/bin", "/usr/local/bin"),
    ],
)
def test_a_loaded_driver_with_its_program_came_with_the_machine(
    folder: str, tmp_path: Path
) -> None:
    assert host_driver.is_loaded(installed(tmp_path, f"{folder}/nvidia-smi"))


def test_a_program_may_be_a_link_within_the_machine(tmp_path: Path) -> None:
    machine = installed(tmp_path, "/opt/vendor/bin/nvidia-smi")
    assert not host_driver.is_loaded(machine)
    link(tmp_path, "/usr/bin/nvidia-smi", "/opt/vendor/bin/nvidia-smi")
    assert host_driver.is_loaded(machine)


def test_a_driver_of_a_container_is_not_the_machines(tmp_path: Path) -> None:
    for number, path in enumerate((driver_files.STATE, f"{driver_files.ROOT}/usr/bin/x")):
        machine = installed(tmp_path / str(number))
        put(Path(machine.root), path, "digest")
        assert not host_driver.is_loaded(machine)
    machine = installed(tmp_path / "admitted")
    gate.put_answer(machine, GateAnswer(pod_uid="a", label="l", at=1.0))
    assert not host_driver.is_loaded(machine)


def test_what_is_left_of_a_removed_driver_is_none(tmp_path: Path) -> None:
    machine = installed(tmp_path / "unloaded")
    put(Path(machine.root), "/proc/modules", "ext4 1 0 - Live 0x0\n")
    assert not host_driver.is_loaded(machine)
    for name, text, mode in (("empty", "", 0o755), ("no-program", "text", 0o644)):
        machine = tree(tmp_path / name, {**LOADED, "/usr/bin/nvidia-smi": text})
        (tmp_path / name / "usr/bin/nvidia-smi").chmod(mode)
        assert not host_driver.is_loaded(machine)
    machine = tree(tmp_path / "folder", {**LOADED, "/usr/bin/nvidia-smi/x": ""})
    assert not host_driver.is_loaded(machine)
