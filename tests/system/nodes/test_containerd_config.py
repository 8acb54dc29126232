"""What a real containerd makes of its configuration, before and after ours is added."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from libs.host.runtimes.common import HANDLERS
from libs.host.runtimes.containerd import FOLDER, configure
from libs.testing.realnodes import config
from libs.testing.realnodes.build import Containerd
from libs.testing.realnodes.ground import NodeSearch
from tests.unit.host.runtimes.test_containerd import PEOPLES

CRI = "io.containerd.cri.v1.runtime"


def dump(containerd: Path, folder: Path, main: str, drop_in: str = "") -> dict[str, Any]:
    """Return the configuration that containerd takes from these files."""
    (folder / "conf.d").mkdir(exist_ok=True)
    (folder / "conf.d/99-sluice.toml").write_text(drop_in)
    file = folder / "config.toml"
    file.write_text(main.replace(FOLDER, str(folder / "conf.d")))
    command = [containerd, "--config", file, "config", "dump"]
    return tomllib.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("main", [PEOPLES, config.containerd(Containerd.V2), "version = 3\n"])
def test_only_the_handlers_are_new(search: NodeSearch, tmp_path: Path, main: str) -> None:
    containerd = search.programs.containerd(Containerd.V2) / "containerd"
    before = dump(containerd, tmp_path, main)
    change = configure(main, {})
    after = dump(containerd, tmp_path, change.main, change.drop_in)
    containers = after["plugins"][CRI]["containerd"]
    default = containers["runtimes"][containers["default_runtime_name"]]
    for handler in HANDLERS:
        alias = containers["runtimes"].pop(handler)
        different = {name for name in alias if alias[name] != default[name]}
        assert different <= {"options", "sandboxer"}
        assert alias.get("options", {}).items() <= default["options"].items()
        # Empty is containerd's default, podsandbox.
        assert alias["sandboxer"] in ("", default["sandboxer"])
    for each in (before, after):
        assert each["plugins"][CRI].pop("enable_cdi", True)
        each.pop("imports")
    assert after == before
    assert default["runtime_type"] == "io.containerd.runc.v2"
