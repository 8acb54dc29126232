"""What real nodes leave on the machine: nothing, and after kill -9 what the next run removes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.testing.errors import ServerFailed
from libs.testing.realnodes.ground import Ground, NodeSearch, remove_leftovers
from libs.testing.realnodes.node import Node
from tests.support import eventually
from tests.system.nodes.leftovers import (
    cgroups_of,
    differences,
    left_by_a_pair,
    machine,
    names_in,
    processes_of,
)

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


@pytest.mark.soak(
    "a control plane and two nodes of its own; in each run the shared pair must leave no cgroup and"
    " no folder"
)
async def test_a_pair_of_nodes_leaves_nothing(search: NodeSearch, folder: Path) -> None:
    assert await left_by_a_pair(search, folder) == []


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
    assert differences(before, await asyncio.to_thread(machine)) == []


@pytest.mark.soak(
    "a control plane and two nodes of its own; in each run the next start removes what a killed"
    " one left"
)
async def test_a_start_that_fails_leaves_nothing(
    search: NodeSearch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Node.start

    async def start_all_but_one(node: Node, **options: Any) -> None:
        await start(node, **options)
        if node.index == 2:
            raise ServerFailed("planted")

    monkeypatch.setattr(Node, "start", start_all_but_one)
    before = await asyncio.to_thread(machine)
    with pytest.raises(ServerFailed, match="planted"):
        await Ground.start(search, nodes=2)
    assert names_in(folder) == []
    assert await asyncio.to_thread(processes_of, folder) == []
    assert differences(before, await asyncio.to_thread(machine)) == []
