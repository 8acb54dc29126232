"""I12 for containerd's files: what people wrote is what is there again after the undo."""

from pathlib import Path

import pytest

from libs.host.files import UndoableFiles
from libs.host.runtimes import configuration
from libs.host.runtimes.common import NotConfigurable
from libs.host.runtimes.configuration import Wanted
from libs.host.runtimes.containerd import DROP_IN, IMPORT, MAIN
from libs.host.tree import Tree
from tests.builders.machine_files import put, tree
from tests.unit.host.killable_tree import KillableTree, Killed
from tests.unit.host.runtimes.test_containerd import PEOPLES

CRUN = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
runtime_type = "io.containerd.runc.v2"
"""
REGISTRY = "/etc/containerd/more/10-registry.toml"
THEIRS = f'imports = ["{REGISTRY}", "conf.d/*.conf"]\n{PEOPLES}'


def install(here: Tree) -> bool:
    return configuration.install(here, configuration.plan(here, Wanted()))


def machine(root: Path) -> Tree:
    made = tree(root, {MAIN: THEIRS, REGISTRY: "version = 2\n", "/etc/containerd/a.toml": "x"})
    (root / MAIN.lstrip("/")).chmod(0o600)
    (root / "var/lib").mkdir(parents=True)
    return made


def content(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


def test_the_undo_leaves_the_files_as_they_were(tmp_path: Path) -> None:
    here = machine(tmp_path)
    before = content(tmp_path)
    assert install(here)
    installed = content(tmp_path)
    assert (here.read_text(MAIN) or "").startswith(
        f'imports = ["{REGISTRY}", "conf.d/*.conf", "{IMPORT}"]'
    )
    assert here.mode(MAIN) == 0o600
    assert here.exists(DROP_IN)
    assert not install(here)
    assert content(tmp_path) == installed
    assert UndoableFiles(here).undo() == ()
    assert content(tmp_path) == before


def test_a_process_that_is_killed_anywhere_leaves_what_can_be_taken_back(tmp_path: Path) -> None:
    kills = 0
    while True:
        root = tmp_path / str(kills)
        root.mkdir()
        here = machine(root)
        before = content(root)
        try:
            install(KillableTree(root, at=kills))
        except Killed:
            kills += 1
        else:
            break
        if kills % 2:
            install(here)
        UndoableFiles(here).undo()
        assert content(root) == before
    assert kills >= 5


def test_all_files_that_containerd_reads_count(tmp_path: Path) -> None:
    """Imports have `*` in any part, and imports of their own, also of each other."""
    here = tree(
        tmp_path,
        {
            MAIN: 'imports = ["/etc/containerd/*/a.toml"]\nversion = 2\n',
            "/etc/containerd/x/a.toml": 'imports = ["../y/b.toml"]\nversion = 2\n',
            "/etc/containerd/y/b.toml": f'imports = ["{MAIN}"]\nversion = 2\n{CRUN}',
        },
    )
    assert "crun" in configuration.plan(here, Wanted(merges=True))[DROP_IN]
    put(tmp_path, "/etc/containerd/y/b.toml", "[")
    with pytest.raises(NotConfigurable, match=r"y/b\.toml is not valid TOML"):
        configuration.plan(here, Wanted())
    (tmp_path / "etc/containerd/y/b.toml").unlink()
    with pytest.raises(NotConfigurable, match=r"imports /etc/containerd/y/b\.toml, which does not"):
        configuration.plan(here, Wanted())


@pytest.mark.parametrize(
    "later", ["/etc/containerd/conf.d/zzz.toml", "/etc/containerd/more/a.toml"]
)
def test_a_file_that_would_hide_our_own_is_named(tmp_path: Path, later: str) -> None:
    main = 'imports = ["conf.d/*.toml", "more/*.toml"]\nversion = 2\n'
    here = tree(tmp_path, {MAIN: main, later: f"version = 2\n{CRUN}", REGISTRY: "version = 2\n"})
    before = content(tmp_path)
    with pytest.raises(NotConfigurable, match=f"reads {later} after {DROP_IN}: name a file in"):
        install(here)
    assert content(tmp_path) == before
    for wanted in (
        Wanted(merges=True),
        Wanted(drop_in="/etc/containerd/more/zz-sluice.toml"),
    ):
        plan = configuration.plan(here, wanted)
        assert plan[MAIN] == main
        assert "crun" in next(iter(plan.values()))


def test_another_place_of_our_file_replaces_the_first(tmp_path: Path) -> None:
    here = machine(tmp_path)
    before = content(tmp_path)
    install(here)
    other = f"{DROP_IN.rpartition('/')[0]}/50-other.toml"
    wanted = Wanted(drop_in=other)
    text = here.read_text(DROP_IN)
    assert configuration.install(here, configuration.plan(here, wanted))
    assert (here.read_text(other), here.exists(DROP_IN)) == (text, False)
    assert not configuration.install(here, configuration.plan(here, wanted))
    assert UndoableFiles(here).undo() == ()
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("path", "text"),
    [(MAIN, "version = "), (MAIN, "\udcff"), (REGISTRY, "["), (REGISTRY, "\udcff")],
)
def test_broken_files_are_left_alone(tmp_path: Path, path: str, text: str) -> None:
    here = machine(tmp_path)
    put(tmp_path, path, text)
    before = content(tmp_path)
    with pytest.raises(NotConfigurable, match=path):
        install(here)
    assert content(tmp_path) == before


def test_a_machine_without_a_configuration_gets_one_that_the_undo_removes(tmp_path: Path) -> None:
    here = tree(tmp_path)
    (tmp_path / "var/lib").mkdir(parents=True)
    before = content(tmp_path)
    assert install(here)
    assert here.read_text(MAIN) == f'imports = ["{IMPORT}"]\nversion = 2\n'
    UndoableFiles(here).undo()
    assert content(tmp_path) == before
