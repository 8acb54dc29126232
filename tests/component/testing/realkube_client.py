"""A minimal client of a real API server, and a list of processes."""

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from libs.testing.realkube.cluster import RealKube

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"

NODE = "/api/v1/nodes/n1"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Client:
    """A client that acts as one user inside an `async with` block."""

    def __init__(self, kube: RealKube, user: str = "admin") -> None:
        self._kube = kube
        self._headers = {"Authorization": f"Bearer {kube.token(user)}", "User-Agent": "probe/1.0"}

    async def __aenter__(self) -> "Client":
        trust = ssl.create_default_context(cafile=self._kube.ca_file)
        self._session = aiohttp.ClientSession(
            self._kube.url,
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=trust),
            timeout=aiohttp.ClientTimeout(total=30),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        as_: str = "application/json",
        **query: str,
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": as_}
        async with self._session.request(
            method, path, json=body, headers=headers, params=query
        ) as answer:
            return answer.status, await answer.json()

    async def watched(self, path: str, **query: str) -> list[Mapping[str, Any]]:
        """Return the events of a watch that ends after a second."""
        query |= {"watch": "1", "timeoutSeconds": "1"}
        async with self._session.get(path, params=query) as answer:
            return [json.loads(line) async for line in answer.content]


def running(folder: Path) -> dict[str, int]:
    """Return the processes with this folder on their command line: pid by program."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().decode().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if any(str(folder) in argument for argument in argv):
                found[Path(argv[0]).name] = int(entry.name)
    return found
