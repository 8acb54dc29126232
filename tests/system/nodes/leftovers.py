"""What nodes could leave on the machine, and a pair of nodes that runs a pod each and is gone."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from libs.testing.realnodes.cgroups import CGROUPS
from libs.testing.realnodes.ground import Ground, NodeSearch
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

_SYSCTLS: Final = Path("/proc/sys")
_CHANGES_BY_ITSELF: Final = "kernel/ns_last_pid"
_OF_TESTS: Final = "sluice-"
"""The beginning of the names of cgroups that tests make, perhaps of another run at this time."""


def machine() -> dict[str, object]:
    """Return what belongs to no node: mounts, links, cgroups and kernel settings."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    return {
        "mounts": Path("/proc/self/mounts").read_text(),
        "links": [line.split(": ")[1] for line in links.stdout.splitlines()],
        "cgroups": sorted(
            str(path) for path in CGROUPS.glob("*/*/") if not path.name.startswith(_OF_TESTS)
        ),
        "sysctls": _sysctls(),
    }


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return what has changed on the machine, a line each."""
    return [
        f"{name} were {before[name]!r} and are {after[name]!r}"
        for name in before
        if before[name] != after[name]
    ]


def processes_of(folder: Path) -> list[str]:
    """Return the processes that name something in this folder, or that have it mounted."""
    found: list[str] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
                mounts = (process / "mountinfo").read_text()
            except OSError:
                continue
            if str(folder) in command or str(folder) in mounts:
                found.append(command or process.name)
    return found


def names_in(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def cgroups_of(*names: str) -> list[Path]:
    """Return the cgroups of nodes."""
    return [path for name in names for path in CGROUPS.glob(f"*/{name}")]


async def left_by_a_pair(search: NodeSearch, folder: Path) -> list[str]:
    """Start two nodes with a pod each, below this folder, and stop them; return what is left."""
    before = await asyncio.to_thread(machine)
    ground = await Ground.start(search, nodes=2)
    names = [node.folder.name for node in ground.nodes]
    try:
        await _run_pods(ground)
        here = cgroups_of(*names), await asyncio.to_thread(processes_of, folder)
    finally:
        await ground.stop()
    if not all(here):
        return [f"the pair had no cgroups or no processes: {here}"]
    return [
        *names_in(folder),
        *map(str, cgroups_of(*names)),
        *await asyncio.to_thread(processes_of, folder),
        *differences(before, await asyncio.to_thread(machine)),
    ]


async def _run_pods(ground: Ground) -> None:
    kubectl = Kubectl(ground.kube)
    for node in ground.nodes:
        await kubectl.wait("create", f"node/{node.name}")
        await kubectl.wait("condition=Ready", f"node/{node.name}")
    await kubectl.wait("create", "serviceaccount/default")
    names = [f"on-{node.name}" for node in ground.nodes]
    await kubectl.apply(
        *(pod(name, node.name) for name, node in zip(names, ground.nodes, strict=True))
    )
    await kubectl.wait("condition=Ready", *(f"pod/{name}" for name in names))


def _sysctls() -> dict[str, str]:
    """Return the kernel settings that can be written and read."""
    found: dict[str, str] = {}
    for folder, _, names in os.walk(_SYSCTLS):
        for name in names:
            file = Path(folder) / name
            key = str(file.relative_to(_SYSCTLS))
            try:
                if file.stat().st_mode & 0o200 and key != _CHANGES_BY_ITSELF:
                    found[key] = file.read_text()
            except OSError:
                continue
    return found
