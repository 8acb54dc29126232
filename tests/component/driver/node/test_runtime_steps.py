"""I12 for a container runtime, wherever the agent is killed: people's files are as before."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from libs.host.runtimes import containerd, crio
from libs.host.runtimes.common import HANDLERS, NotConfigurable
from libs.host.runtimes.port import RuntimeStatus, RuntimeUnavailable
from libs.host.tree import Tree
from services.driver.node import runtime_attempt as attempts
from services.driver.node.runtime_steps import Restart, RuntimeSettings, Settled, next_step
from services.driver.node.undo import remove_files
from tests.builders.machine_files import put, tree
from tests.component.driver.node.memory_runtime import UNIT, MemoryRuntime
from tests.unit.host.killable_tree import KillableTree, Killed
from tests.unit.host.runtimes.test_configuration import REGISTRY, THEIRS, content

ON, OFF = RuntimeSettings(), RuntimeSettings(configure=False)
OTHERS = RuntimeSettings(handlers=("gpu", "nvidia-cdi"))


class HalfWritingTree(KillableTree):
    """Ends the process before or within one of its changes; what it had changed stays."""

    def write(
        self, path: str, data: bytes, *, mode: int = 0o644, owner: tuple[int, int] | None = None
    ) -> None:
        self.step()
        folder, _, name = path.rpartition("/")
        if not self._left and self.is_folder(folder):
            Tree.write(self, f"{folder}/.{name}.unfinished", data[: len(data) // 2])
        super().write(path, data, mode=mode, owner=owner)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def remove_folder(self, path: str) -> None:
        self.step()
        super().remove_folder(path)


def machine(root: Path) -> Tree:
    made = tree(root, {containerd.MAIN: THEIRS, REGISTRY: "version = 2\n"})
    (root / containerd.MAIN.lstrip("/")).chmod(0o600)
    (root / "var/lib").mkdir(parents=True)
    (root / "run/sluice").mkdir(parents=True)
    return made


def settle(here: Tree, settings: RuntimeSettings, containers: MemoryRuntime) -> None:
    """Do what an agent does until nothing is left to do."""
    now = 1000.0
    for _ in range(10):
        step = next_step(here, settings, _ask(containers), now=now)
        if isinstance(step, Restart):
            attempts.save(here, replace(step.attempt, at=now))
            if isinstance(here, KillableTree):
                here.write("/run/sluice/between", b"")
            containers.restart_unit(UNIT)
        elif isinstance(step, Settled):
            assert step.why == ""
            return
        now += attempts.WITHIN
    pytest.fail("there is always something left to do")


def _ask(containers: MemoryRuntime) -> RuntimeStatus | str:
    try:
        return containers.status()
    except RuntimeUnavailable as error:
        return str(error)


@pytest.mark.parametrize(
    ("settings", "earlier"), [(ON, ()), (OTHERS, (ON,)), (OFF, (ON,)), (OFF, (ON, OTHERS))]
)
def test_a_killed_agent_is_continued_by_the_next(
    tmp_path: Path, settings: RuntimeSettings, earlier: tuple[RuntimeSettings, ...]
) -> None:
    expected = None
    for kills in range(100):
        root = tmp_path / str(kills)
        root.mkdir()
        here = machine(root)
        before = _etc(root)
        containers = MemoryRuntime(here)
        for each in earlier:
            settle(here, each, containers)
        try:
            settle(HalfWritingTree(root, at=kills), settings, containers)
        except Killed:
            settle(here, settings, containers)
        else:
            assert kills >= 6
            return
        found = _etc(root), containers.status().handlers
        expected = expected or found
        assert found == expected
        settle(here, OFF, containers)
        assert _etc(root) == before
        assert containers.status().handlers == {"crun", "kata"}


def _etc(root: Path) -> dict[str, tuple[int, bytes]]:
    return content(root / "etc")


def test_an_edit_of_a_person_is_followed_and_kept(tmp_path: Path) -> None:
    here = machine(tmp_path)
    containers = MemoryRuntime(here)
    settle(here, ON, containers)
    main = (here.read_text(containerd.MAIN) or "").replace("SystemdCgroup = true", "NoPivot = true")
    put(tmp_path, containerd.MAIN, main)
    settle(here, ON, containers)
    assert "NoPivot = true" in (here.read_text(containerd.DROP_IN) or "")
    settle(here, OFF, containers)
    assert here.read_text(containerd.MAIN) == main
    assert not here.exists(containerd.DROP_IN)


def status(**values: object) -> RuntimeStatus:
    return RuntimeStatus(pid=7, **{"name": "containerd", **values})  # type: ignore[arg-type]


GENERATED = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"
CRI = containerd.SECTIONS[3]
BASE = f"""\
version = 3
root = "/var/lib/rancher/rke2/agent/containerd"
[plugins."{CRI}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{CRI}".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""
TEMPLATE = GENERATED.replace("config.toml", "config-v3.toml.tmpl")
FOLDER = GENERATED.replace("config.toml", "config-v3.toml.d")
IMPORTING = f'imports = ["{FOLDER}/*.toml"]\n{BASE}'
CRUN = """\
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
"""


@pytest.mark.parametrize(
    ("name", "path", "text", "written"),
    [
        ("cri-o", "/etc/crio/crio.conf.d/10-crio.conf", CRUN, crio.DROP_IN),
        ("containerd", GENERATED, BASE, TEMPLATE),
        ("containerd", GENERATED, IMPORTING, f"{FOLDER}/zz-sluice.toml"),
    ],
)
def test_the_runtime_says_which_files_are_its_own(
    tmp_path: Path, name: str, path: str, text: str, written: str
) -> None:
    here = tree(tmp_path, {path: text})
    (tmp_path / "var/lib").mkdir(parents=True, exist_ok=True)
    (tmp_path / "run/sluice").mkdir(parents=True)
    before = content(tmp_path)
    config = "" if name == "cri-o" else GENERATED
    step = next_step(here, ON, status(name=name, config=config, reads_cdi=True), now=0.0)
    assert isinstance(step, Restart)
    assert "nvidia-cdi" in (here.read_text(written) or "")
    assert here.read_text(path) == text
    next_step(here, OFF, "the runtime does not answer", now=0.0)
    attempts.clear(here)
    assert content(tmp_path) == before


LATER = {"/etc/crio/crio.conf.d/50-mine.conf": "# Ours.\n[crio.image]\npause = 'x'  # kept\n"}
PEOPLES_TEMPLATE = '{{ template "base" . }}\n\n# Our registry.\n[plugins."x".y]\nz = 1'
HOSTS = {
    "CRI-O": ("cri-o", "", {"/etc/crio/crio.conf.d/10-crio.conf": CRUN, **LATER}),
    "RKE2": ("containerd", GENERATED, {GENERATED: BASE}),
    "RKE2 with a template of people": (
        "containerd",
        GENERATED,
        {GENERATED: BASE + PEOPLES_TEMPLATE.partition("\n\n")[2], TEMPLATE: PEOPLES_TEMPLATE},
    ),
    "RKE2 that imports a folder": (
        "containerd",
        GENERATED,
        {GENERATED: IMPORTING, f"{FOLDER}/10-mine.toml": "# Ours.\nversion = 3\n"},
    ),
}


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize(
    ("settings", "earlier"), [(ON, ()), (OTHERS, (ON,)), (OFF, (ON,)), (OFF, (ON, OTHERS))]
)
def test_files_of_other_runtimes_are_as_before_wherever_the_agent_was_killed(
    tmp_path: Path, name: str, settings: RuntimeSettings, earlier: tuple[RuntimeSettings, ...]
) -> None:
    runtime, config, files = HOSTS[name]
    lacks = status(name=runtime, config=config, reads_cdi=True)

    def step(here: Tree, settings: RuntimeSettings) -> None:
        next_step(here, settings, lacks, now=0.0)

    expected = None
    for kills in range(100):
        root = tmp_path / str(kills)
        root.mkdir()
        here = tree(root, {**files, "/proc/modules": ""})
        (root / "var/lib").mkdir(parents=True, exist_ok=True)
        (root / "run/sluice").mkdir(parents=True)
        before = _etc(root), content(root / "var")
        for each in earlier:
            step(here, each)
        try:
            step(HalfWritingTree(root, at=kills), settings)
        except Killed:
            step(here, settings)
        else:
            assert kills >= 2
            return
        found = _etc(root), content(root / "var/lib/rancher")
        expected = expected or found
        assert found == expected
        step(here, OFF)
        remove_files(here)
        assert (_etc(root), content(root / "var")) == before


@pytest.mark.parametrize(
    ("runtime", "config", "broken"),
    [
        ("cri-o", "", {"/etc/crio/crio.conf.d/10-crio.conf": f"{CRUN}[crio"}),
        ("cri-o", "", {"/etc/crio/crio.conf.d/10-crio.conf": CRUN, **dict.fromkeys(LATER, "[")}),
        ("containerd", GENERATED, {GENERATED: f"{BASE}[plugins"}),
        ("containerd", GENERATED, {GENERATED: IMPORTING, f"{FOLDER}/10-mine.toml": "["}),
    ],
)
def test_broken_files_of_other_runtimes_are_left_alone(
    tmp_path: Path, runtime: str, config: str, broken: dict[str, str]
) -> None:
    here = tree(tmp_path, broken)
    before = content(tmp_path)
    with pytest.raises(NotConfigurable, match="is not valid TOML"):
        next_step(here, ON, status(name=runtime, config=config, reads_cdi=True), now=0.0)
    assert content(tmp_path) == before


def test_a_runtime_that_is_not_known_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(NotConfigurable, match="'docker', which Sluice does not configure"):
        next_step(tree(tmp_path), ON, status(name="docker"), now=0.0)


def test_nothing_is_undone_that_was_not_done(tmp_path: Path) -> None:
    known = status(handlers=frozenset(HANDLERS), reads_cdi=True)
    for settings in (ON, OFF):
        assert next_step(tree(tmp_path), settings, known, now=0.0) == Settled()
    assert content(tmp_path) == {}
