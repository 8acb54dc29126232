"""The root of a driver container on a real node, with stand-ins of the driver's files."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from libs.testing.nvml import CUDA_NAME, NAME, STATE_IN_CONTAINERS, library
from libs.testing.nvml.stand_in import DRIVER
from libs.testing.realnodes.gpus import NodeGpus
from libs.testing.realnodes.node import MACHINE, Node

ROOT: Final = "/run/nvidia/driver"
SMI_SAYS: Final = "stand-in"


@asynccontextmanager
async def driver_root(node: Node, gpus: NodeGpus) -> AsyncGenerator[None]:
    """Mount the root on a node that has these GPUs; take it away at the end."""
    folder = node.folder / "machine/driver"
    await asyncio.to_thread(_install, folder, gpus.stand_in.path)
    await node.run("mkdir", "-p", ROOT)
    await node.run("mount", "--bind", f"{MACHINE}/driver", ROOT)
    yield
    await node.run("umount", "--lazy", ROOT)
    await asyncio.to_thread(shutil.rmtree, folder)


def _install(folder: Path, state: Path) -> None:
    """Write the root, without a cache of its loader."""
    libraries = folder / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in (CUDA_NAME, NAME):
        whole = f"{name.removesuffix('.1')}.{DRIVER}"
        shutil.copy(library() / name, libraries / whole)
        (libraries / name).symlink_to(whole)
    smi = folder / "usr/bin/nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(f"#!/bin/sh\necho {SMI_SAYS}\n")
    smi.chmod(0o755)
    # Where the stand-ins find the machine in a container: CDI mounts firmware too.
    firmware = folder / "lib/firmware/nvidia" / DRIVER
    firmware.mkdir(parents=True)
    state.chmod(0o644)
    os.link(state, firmware / STATE_IN_CONTAINERS)
