"""A machine from which the API server is reached, and neither names nor addresses of pods are."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.system.install.world import NAMESPACE, World

BINDING: Final = "sluice-people-system-serviceaccount-default-person"
"""What the command calls the RoleBinding that it tells a person to ask for."""


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Laptop:
    """One with a kubeconfig, and with the command without any setting."""

    def __init__(self, world: World, kubeconfig: Path) -> None:
        self._ground = world.ground
        self._kubeconfig = kubeconfig

    async def sluice(self, *arguments: str) -> Said:
        """Run the command, where NATS has no name."""
        environ = {key: text for key, text in os.environ.items() if not key.startswith("SLUICE_")}
        process = await asyncio.create_subprocess_exec(
            *self._ground.command(sys.executable, "-m", "libs.ctl", *arguments),
            env={**environ, "KUBECONFIG": str(self._kubeconfig), "COLUMNS": "400"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Said(process.returncode or 0, out.decode(), err.decode())

    async def doctor(self) -> Said:
        return await self.sluice("doctor", "--output", "json")


@asynccontextmanager
async def a_person(world: World, folder: Path) -> AsyncGenerator[Path]:
    """Create an account that may do nothing; return a kubeconfig of it.

    Account and binding go in the end: an uninstallation leaves what people made, and the test of
    that compares all that there is.
    """
    await world.kubectl.run("--namespace", "default", "create", "serviceaccount", "person")
    try:
        yield await _kubeconfig(world, folder)
    finally:
        await world.kubectl.run("--namespace", "default", "delete", "serviceaccount", "person")
        await world.kubectl.run(
            *("--namespace", NAMESPACE, "delete", "rolebinding", BINDING, "--ignore-not-found")
        )


async def _kubeconfig(world: World, folder: Path) -> Path:
    token = await world.kubectl.run("--namespace", "default", "create", "token", "person")
    content = json.loads(world.ground.kube.kubeconfig().read_text())
    content["users"][0]["user"] = {"token": token.strip()}
    file = folder / "person"
    file.write_text(json.dumps(content))
    return file
