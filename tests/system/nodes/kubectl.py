"""kubectl, as an administrator of the real control plane."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from libs.testing.realkube.cluster import RealKube

_WITHIN = "240s"
_EVENTS = 40
"""How many of the last Events are shown when a wait fails."""


class Kubectl:
    def __init__(self, kube: RealKube) -> None:
        self._command = [str(kube.kubectl), "--kubeconfig", str(kube.kubeconfig())]

    async def run(self, *arguments: str, stdin: str = "") -> str:
        """Run it; return all that it says."""
        return await self._run(arguments, stdin, errors_to=asyncio.subprocess.STDOUT)

    async def output(self, *arguments: str) -> str:
        """Run it; return its output without what it says beside that."""
        return await self._run(arguments, "", errors_to=asyncio.subprocess.PIPE)

    async def _run(self, arguments: tuple[str, ...], stdin: str, *, errors_to: int) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors_to,
        )
        said = await process.communicate(stdin.encode())
        output, errors = ((part or b"").decode(errors="replace") for part in said)
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {output}{errors}"
        return output

    async def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects."""
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        await self.run("apply", "--server-side", "-f", "-", stdin=json.dumps(items))

    async def get(self, *arguments: str) -> dict[str, Any]:
        """Return an object, or a list of them."""
        return json.loads(await self.run("get", "-o", "json", *arguments))

    async def wait(self, what: str, *objects: str) -> None:
        """Wait until all these objects meet a condition; fail with what they are instead."""
        try:
            await self.run("wait", f"--for={what}", f"--timeout={_WITHIN}", *objects)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self._described(*objects)}") from None

    async def _described(self, *objects: str) -> str:
        try:
            described = await self.run("describe", *objects)
            events = await self.run("get", "events", "-A", "--sort-by=.lastTimestamp")
        except AssertionError as error:
            return str(error)
        return "\n".join([described, *events.splitlines()[-_EVENTS:]])

    async def succeeds(self, *arguments: str, within: float = 30.0) -> None:
        """Repeat a command until it succeeds, as a person would."""
        deadline = asyncio.get_running_loop().time() + within
        while True:
            try:
                await self.run(*arguments)
                return
            except AssertionError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.2)
