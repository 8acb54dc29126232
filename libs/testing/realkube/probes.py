"""Readiness probes of a control plane, and requests to its etcd."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp

from libs.testing.errors import ServerFailed

_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_PROBE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "probe-"},
    "spec": {"containers": [{"name": "probe", "image": "none"}]},
}


class EtcdClient:
    """Uses etcd's JSON gateway."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def unready(self) -> str:
        """Return what is missing until it is ready, or an empty string."""
        async with self._session() as session:
            return await _failure(session, "GET", "/health")

    async def compact(self, revision: int) -> None:
        """Compact up to this revision; return when done."""
        body = {"revision": str(revision), "physical": True}
        async with (
            self._session() as session,
            session.post("/v3/kv/compaction", json=body) as response,
        ):
            if response.status != 200:
                raise ServerFailed(
                    f"etcd at {self.url} could not compact up to revision {revision}: "
                    f"{response.status}: {(await response.text()).strip()}"
                )

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(self.url, timeout=_TIMEOUT)


class ApiServerProbe:
    """Probes the API server as the user of a token."""

    def __init__(self, *, url: str, ca_file: Path, token: str) -> None:
        self._url = url
        self._ca_file = ca_file
        self._headers = {"Authorization": f"Bearer {token}"}

    async def unready(self) -> str:
        """Return what is missing until it is ready, or an empty string."""
        try:
            session = self._session()
        except OSError as error:
            return f"no certificate {self._ca_file} yet ({error})"
        async with session:
            return await _failure(session, "GET", "/readyz")

    async def pods_refused(self) -> str:
        """Return what is missing until a pod can be created in `default`, or an empty string."""
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        async with self._session() as session:
            return await _failure(session, "POST", path, body=_PROBE)

    async def version(self) -> str:
        async with self._session() as session, session.get("/version") as response:
            return cast(Mapping[str, str], await response.json())["gitVersion"]

    def _session(self) -> aiohttp.ClientSession:
        trust = ssl.create_default_context(cafile=self._ca_file)
        return aiohttp.ClientSession(
            self._url,
            headers=self._headers,
            timeout=_TIMEOUT,
            connector=aiohttp.TCPConnector(ssl=trust),
        )


async def _failure(
    session: aiohttp.ClientSession, method: str, path: str, *, body: Any = None
) -> str:
    try:
        async with session.request(method, path, json=body) as response:
            if response.status < 300:
                return ""
            return f"{method} {path} answered {response.status}: {(await response.text()).strip()}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{method} {path} fails: {error!r}"
