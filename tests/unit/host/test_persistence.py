"""How NVML of an agent finds the daemon that keeps GPUs open."""

from pathlib import Path

from libs.host.driver_files import ROOT
from libs.host.persistence import SOCKET, lead_to_socket
from libs.host.tree import Tree
from tests.builders.machine_files import link, put
from tests.unit.host.cdi.drivers import add_socket


def lead(machine: Path, folder: Path) -> str | None:
    lead_to_socket(Tree(machine), driver_root=ROOT, folder=folder)
    found = folder / "socket"
    return str(found.readlink()) if found.is_symlink() else None


def test_the_link_leads_to_the_daemon_of_the_container_before_that_of_the_machine(
    tmp_path: Path,
) -> None:
    machine, folder = tmp_path / "host", tmp_path / "run"
    folder.mkdir()
    put(machine, "/etc/hostname", "n1")
    assert lead(machine, folder) is None
    add_socket(machine, SOCKET)
    assert lead(machine, folder) == f"{machine}{SOCKET}"
    add_socket(machine, f"{ROOT}{SOCKET}")
    assert lead(machine, folder) == f"{machine}{ROOT}{SOCKET}"
    assert lead(machine, folder) == f"{machine}{ROOT}{SOCKET}"
    assert (folder / "socket").is_socket()
    for root in ("", ROOT):
        (machine / f"{root}{SOCKET}".lstrip("/")).unlink()
    assert lead(machine, folder) is None
    assert list(folder.iterdir()) == []


def test_without_a_folder_of_its_own_a_process_changes_nothing(tmp_path: Path) -> None:
    add_socket(tmp_path, SOCKET)
    assert lead(tmp_path, tmp_path / "missing") is None
    own = tmp_path / SOCKET.lstrip("/")
    assert lead(tmp_path, own.parent) is None
    assert own.is_socket()


def test_a_link_of_a_driver_container_does_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    add_socket(tmp_path, "/run/containerd/containerd.sock")
    link(tmp_path, f"{ROOT}{SOCKET}", "/run/containerd/containerd.sock")
    assert lead(tmp_path, tmp_path / "run") is None
