"""The few requests that tell whether a control plane serves, and those to etcd beneath it."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp

from libs.testing.errors import ServerFailed

_EACH = aiohttp.ClientTimeout(total=5.0)
_PROBE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "probe-"},
    "spec": {"containers": [{"name": "probe", "image": "none"}]},
}


class EtcdClient:
    """By its JSON gateway."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def unready(self) -> str:
        """What is missing until it serves, or nothing."""
        async with self._session() as session:
            return await _missing(session, "GET", "/health")

    async def compact(self, revision: int) -> None:
        """Forget what was before this revision; returns when it has."""
        body = {"revision": str(revision), "physical": True}
        async with (
            self._session() as session,
            session.post("/v3/kv/compaction", json=body) as answer,
        ):
            if answer.status != 200:
                raise ServerFailed(
                    f"etcd at {self.url} was to compact up to revision {revision} but answered "
                    f"{answer.status}: {(await answer.text()).strip()}"
                )

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(self.url, timeout=_EACH)


class ApiServerProbe:
    """The API server, as a user with this token sees it."""

    def __init__(self, *, url: str, ca_file: Path, token: str) -> None:
        self._url = url
        self._ca_file = ca_file
        self._headers = {"Authorization": f"Bearer {token}"}

    async def unready(self) -> str:
        """What is missing until it serves, or nothing."""
        try:
            session = self._session()
        except OSError as error:
            return f"it has not written its certificate {self._ca_file} ({error})"
        async with session:
            return await _missing(session, "GET", "/readyz")

    async def pods_refused(self) -> str:
        """What is missing until a pod can be created in `default`, or nothing."""
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        async with self._session() as session:
            return await _missing(session, "POST", path, body=_PROBE)

    async def version(self) -> str:
        """The release that it says it is."""
        async with self._session() as session, session.get("/version") as answer:
            return cast(Mapping[str, str], await answer.json())["gitVersion"]

    def _session(self) -> aiohttp.ClientSession:
        trust = ssl.create_default_context(cafile=self._ca_file)
        return aiohttp.ClientSession(
            self._url,
            headers=self._headers,
            timeout=_EACH,
            connector=aiohttp.TCPConnector(ssl=trust),
        )


async def _missing(
    session: aiohttp.ClientSession, method: str, path: str, *, body: Any = None
) -> str:
    try:
        async with session.request(method, path, json=body) as answer:
            if answer.status < 300:
                return ""
            return f"{method} {path} is answered {answer.status}: {(await answer.text()).strip()}"
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{method} {path} fails: {error!r}"
