from pathlib import Path

from libs.host import driver_files
from tests.unit.host.builders import tree


def test_the_installed_digest_is_read(tmp_path: Path) -> None:
    assert driver_files.installed_digest(tree(tmp_path / "none")) == ""
    machine = tree(tmp_path, {driver_files.STATE: "0c5d9f7e\n"})
    assert driver_files.installed_digest(machine) == "0c5d9f7e"


def test_clear_removes_the_files_of_a_driver(tmp_path: Path) -> None:
    files = {driver_files.PID: "1", driver_files.STATE: "x", driver_files.READY: "", "/run/x": "y"}
    machine = tree(tmp_path, files)
    driver_files.clear(machine)
    driver_files.clear(machine)
    assert [path for path in files if machine.exists(path)] == ["/run/x"]
