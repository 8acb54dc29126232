"""What a real containerd makes of its configuration, before and after ours is added."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from libs.host.runtimes import configuration, containerd
from libs.host.runtimes.common import HANDLERS
from libs.host.runtimes.configuration import Wanted
from libs.host.runtimes.containerd import SECTIONS
from libs.host.tree import Tree
from libs.testing.realnodes import config
from libs.testing.realnodes.build import Containerd
from libs.testing.realnodes.ground import NodeSearch
from tests.builders.machine_files import put
from tests.unit.host.runtimes.test_containerd import PEOPLES

FOLDER = "/etc/containerd"
MAIN = f"{FOLDER}/config.toml"
RELEASES = {Containerd.V1_7: "1.7.35", Containerd.V2: "v2.4.2"}
TYPE = "io.containerd.runc.v2"
RUNC = "containerd.runtimes.runc"


def importing(version: int) -> dict[str, str]:
    """Return files that import others, of which one has the section of containers too."""
    begin = f'version = {version}\n[plugins."{SECTIONS[version]}"'
    return {
        MAIN: f'imports = ["{FOLDER}/*/10-*.toml", "conf.d/*.toml"]\n'
        f"{begin}.{RUNC}.options]\nSystemdCgroup = true\n",
        f"{FOLDER}/more/10-a.toml": f"{begin}]\nmax_container_log_line_size = 7\n",
        f"{FOLDER}/conf.d/registry.toml": f"{begin}.{RUNC}]\nruntime_type = '{TYPE}'\n",
    }


HOSTS: dict[str, tuple[Containerd, Mapping[str, str]]] = {
    f"{name} of {version}": (version, files)
    for version, number in ((Containerd.V1_7, 2), (Containerd.V2, 2), (Containerd.V2, 3))
    for name, files in {
        f"nothing, {number}": {
            MAIN: f"version = {number}\n",
            # What is not imported stays so.
            f"{FOLDER}/conf.d/unused.toml": importing(number)[f"{FOLDER}/more/10-a.toml"],
        },
        f"imports, {number}": importing(number),
        "a person's": {MAIN: PEOPLES},
        "a node's": {MAIN: config.containerd(version)},
        "the default": {},
    }.items()
}
"""The release and the files; none: what the release prints as its default."""


def default_of(program: Path) -> str:
    command = [program, "config", "default"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def dump(program: Path, root: Path) -> dict[str, Any]:
    """Return the configuration that containerd takes from these files."""
    _replace(root, FOLDER, f"{root}{FOLDER}")
    command = [program, "--config", f"{root}{MAIN}", "config", "dump"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _replace(root, f"{root}{FOLDER}", FOLDER)
    return tomllib.loads(found)


def _replace(root: Path, here: str, there: str) -> None:
    """Replace the begin of paths in all files."""
    for path in root.rglob("*.toml"):
        path.write_text(re.sub(rf"""(["']){here}""", rf"\1{there}", path.read_text()))


@pytest.mark.parametrize("host", HOSTS)
def test_only_the_handlers_are_new(search: NodeSearch, tmp_path: Path, host: str) -> None:
    version, files = HOSTS[host]
    program = search.programs.containerd(version) / "containerd"
    for path, text in (files or {MAIN: default_of(program)}).items():
        put(tmp_path, path, text)
    before = dump(program, tmp_path)
    here = Tree(tmp_path)
    wanted = Wanted(merges=containerd.merges(RELEASES[version]))
    configuration.install(here, configuration.plan(here, wanted))
    after = dump(program, tmp_path)
    section = SECTIONS[2 if version is Containerd.V1_7 else 3]
    containers = after["plugins"][section]["containerd"]
    name = containers["default_runtime_name"]
    default = containers["runtimes"][name]
    earlier = before["plugins"][section]["containerd"]["runtimes"][name]
    for handler in HANDLERS:
        assert _is_alias(containers["runtimes"].pop(handler), default)
    # 1.7 shows the options of its own `runc`, and none of one in a file.
    assert _is_alias(default, earlier)
    containers["runtimes"][name] = earlier
    for each in (before, after):
        each["plugins"][section].pop("enable_cdi", None)
        each.pop("imports")
    assert after == before
    assert default["runtime_type"] == TYPE


def _is_alias(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two runtimes differ in nothing but what is not set."""
    different = {name for name in one if one[name] != other[name]}
    options = {name: value for name, value in other.get("options", {}).items() if value}
    return different <= {"options", "sandboxer", "sandbox_mode"} and all(
        one.get("options", {}).get(name) == value for name, value in options.items()
    )
