from pathlib import Path

import pytest

from libs.host import driver_files
from tests.builders.machine_files import tree


def test_the_installed_digest_is_read(tmp_path: Path) -> None:
    assert driver_files.installed_digest(tree(tmp_path / "none")) == ""
    machine = tree(tmp_path, {driver_files.STATE: "0c5d9f7e\n"})
    assert driver_files.installed_digest(machine) == "0c5d9f7e"


def test_clear_removes_the_files_of_a_driver(tmp_path: Path) -> None:
    files = {
        driver_files.PID: "1",
        driver_files.STATE: "x",
        driver_files.READY: "",
        driver_files.DAEMONS: "NotReady",
        "/run/x": "y",
    }
    machine = tree(tmp_path, files)
    driver_files.clear(machine)
    driver_files.clear(machine)
    assert [path for path in files if machine.exists(path)] == ["/run/x"]


@pytest.mark.parametrize("path", driver_files.DAEMON_PIDS)
@pytest.mark.parametrize(
    ("pid", "comm", "stays"),
    [
        ("1234", "nv-fabricmanage", "/run/nvidia-fabricmanager/nv-fabricmanager.pid"),
        ("1234", "nvlsm", "/run/nvidia-fabricmanager/nvlsm.pid"),
        ("1234", "nvidia-topology", "/run/nvidia-topologyd/nvidia-topologyd.pid"),
        ("1234", "sshd", ""),
        ("4321", "", ""),
        ("", "", ""),
        ("../../etc", "", ""),
    ],
)
def test_a_pid_file_stays_only_while_its_daemon_runs(
    path: str, pid: str, comm: str, stays: str, tmp_path: Path
) -> None:
    files = {path: f"{pid}\n"}
    machine = tree(tmp_path, {**files, f"/proc/{pid}/comm": f"{comm}\n"} if comm else files)
    driver_files.clear(machine)
    assert machine.exists(path) == (path == stays)
