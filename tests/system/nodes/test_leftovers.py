"""What real nodes leave on the machine: nothing, and after kill -9 what the next run removes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libs.testing.realnodes.cgroups import CGROUPS
from libs.testing.realnodes.ground import Ground, NodeSearch, remove_leftovers
from tests.support import eventually

SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")

OWNER = """
import asyncio, os
from libs.testing.realnodes.ground import Ground, find_nodes
ground = asyncio.run(Ground.start(find_nodes(os.environ), nodes=1))
print(ground.nodes[0].folder.name, flush=True)
input()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent of all folders that control planes and nodes make."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def machine() -> dict[str, object]:
    """What a node could change on the machine."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    return {
        "mounts": Path("/proc/self/mounts").read_text(),
        "links": [line.split(": ")[1] for line in links.stdout.splitlines()],
        "sysctls": [Path("/proc/sys", name).read_text() for name in SYSCTLS],
    }


def processes_of(folder: Path) -> list[str]:
    """The command lines that name something in this folder."""
    found: list[str] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(folder) in command:
                found.append(command)
    return found


def names_in(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def cgroups_of(*names: str) -> list[Path]:
    """The cgroups of nodes."""
    return [path for name in names for path in CGROUPS.glob(f"*/{name}")]


async def test_a_pair_of_nodes_leaves_nothing(search: NodeSearch, folder: Path) -> None:
    before = await asyncio.to_thread(machine)
    for _ in range(2):
        ground = await Ground.start(search, nodes=2)
        names = [node.folder.name for node in ground.nodes]
        assert len(cgroups_of(*names)) == 16
        await ground.stop()
        assert names_in(folder) == []
        assert cgroups_of(*names) == []
        assert await asyncio.to_thread(processes_of, folder) == []
    assert await asyncio.to_thread(machine) == before


async def test_after_kill_9_the_next_run_removes_what_is_left(
    search: NodeSearch, folder: Path
) -> None:
    before = await asyncio.to_thread(machine)
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER),
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdout
    name = (await owner.stdout.readline()).decode().strip()
    os.kill(owner.pid, signal.SIGKILL)
    await owner.communicate()
    await eventually(lambda: not processes_of(folder), every=0.1)
    assert len(names_in(folder)) == 2
    assert len(cgroups_of(name)) == 8
    assert len(await asyncio.to_thread(remove_leftovers)) == 2
    assert names_in(folder) == []
    assert cgroups_of(name) == []
    assert await asyncio.to_thread(machine) == before
