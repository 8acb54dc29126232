"""The processes of a control plane: start, probe, compact, kill and end."""

import asyncio
import os
import signal
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import aiohttp

from libs.testing.child_process import HOST, ChildProcess, ReservedPort
from libs.testing.errors import ServerFailed
from libs.testing.netns import NetworkNamespace, Relay
from libs.testing.owned_folder import OwnedFolder
from libs.testing.realkube import components
from libs.testing.realkube.binaries import Binaries
from libs.testing.realkube.components import PlaneFiles, TokenUser

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


WITHIN = 100.0
"""Seconds for a server to get ready, on the slowest machine."""

PREFIX = "sluice-kube-"
"""The beginning of the name of a control plane's folder."""

ADMIN = "admin"
"""The user with all rights."""

_CHECK_EVERY = 0.02
_CERTIFICATE_HEADER = "-----BEGIN CERTIFICATE-----"


class ControlPlane:
    """Ports and data stay the same until `cleanup`."""

    def __init__(
        self,
        *,
        binaries: Binaries,
        users: Mapping[str, TokenUser],
        reads_of: Sequence[str],
        network: NetworkNamespace | None = None,
    ) -> None:
        """In a network of its own its servers are reached from ours by relays at the same ports."""
        self._binaries = binaries
        self._network = network
        self._relays: list[Relay] = []
        self._children: dict[str, ChildProcess] = {}
        self._ports: list[ReservedPort] = []
        self._owned = OwnedFolder(PREFIX)
        self.folder = PlaneFiles(self._owned.path)
        self.url = f"https://{HOST}:{self._reserve_port()}"
        self.etcd = EtcdClient(f"http://{HOST}:{self._reserve_port()}")
        self._peer_url = f"http://{HOST}:{self._reserve_port()}"
        self._probe = ApiServerProbe(
            url=self.url, ca_file=self.folder.chain, token=users[ADMIN].token
        )
        self._write_files(users.values(), reads_of)

    async def start(self) -> None:
        """Start all four; return once a pod can be created."""
        if self._network:
            for url in (self.url, self.etcd.url):
                address = (HOST, urlsplit(url).port or 0)
                self._relays.append(await Relay.start(address, address, connects_in=self._network))
        await self._start_child(
            "etcd",
            components.etcd(
                self._binaries, self.folder, client_url=self.etcd.url, peer_url=self._peer_url
            ),
        )
        await self._wait_ready("etcd", self.etcd.unready)
        await self._start_apiserver()
        authority = self.folder.chain.read_text().rpartition(_CERTIFICATE_HEADER)
        self.folder.ca_file.write_text("".join(authority[1:]))
        await self._start_child(
            "kube-controller-manager",
            components.controller_manager(
                self._binaries,
                self.folder,
                kubeconfig=self.kubeconfig(components.CONTROLLER_MANAGER),
            ),
        )
        await self._start_child(
            "kube-scheduler",
            components.scheduler(self._binaries, kubeconfig=self.kubeconfig(components.SCHEDULER)),
        )
        # Pods need the default service account, which the controller manager creates.
        await self._wait_ready("kube-controller-manager", self._probe.pods_refused)

    async def _start_apiserver(self) -> None:
        await self._start_child(
            "kube-apiserver",
            components.apiserver(self._binaries, self.folder, url=self.url, etcd_url=self.etcd.url),
        )
        await self._wait_ready("kube-apiserver", self._probe.unready)

    async def restart_apiserver(self) -> None:
        """Kill and start the API server."""
        await self.kill("kube-apiserver")
        await asyncio.to_thread(_drop_half_line, self.folder.audit_log)
        await self._start_apiserver()
        await self._wait_ready("kube-apiserver", self._probe.pods_refused)

    async def kill(self, name: str) -> None:
        """Kill a server; an error if it had ended by itself."""
        child = self._children.pop(name)
        try:
            await child.end(signal.SIGKILL, code=-signal.SIGKILL)
        finally:
            await child.destroy()

    async def end(self) -> None:
        """Kill all four; an error if one had ended by itself."""
        # In reverse order of dependencies, to avoid errors about missing servers.
        for name in reversed(list(self._children)):
            await self.kill(name)

    def problem(self) -> str | None:
        """Return which server has ended by itself, with its last lines; nothing while all run."""
        children = list(self._children.values())
        return next((found for child in children if (found := child.problem())), None)

    async def cleanup(self) -> None:
        """Remove whatever is left, without errors."""
        for child in self._children.values():
            await child.destroy()
        for relay in self._relays:
            await relay.stop()
        for port in self._ports:
            port.release()
        await asyncio.to_thread(self._owned.remove)

    async def version(self) -> str:
        return await self._probe.version()

    def kubeconfig(self, user: str) -> Path:
        return self.folder.root / f"{quote(user, safe='')}.kubeconfig"

    def _reserve_port(self) -> int:
        self._ports.append(ReservedPort())
        return self._ports[-1].number

    def _write_files(self, users: Iterable[TokenUser], reads_of: Sequence[str]) -> None:
        self.folder.tokens.write_text(components.tokens(users))
        self.folder.audit_policy.write_text(components.audit_policy(reads_of))
        for user in users:
            text = components.kubeconfig(user, url=self.url, ca_file=self.folder.ca_file)
            self.kubeconfig(user.name).write_text(text)

    async def _start_child(self, name: str, argv: list[str]) -> None:
        command = self._network.command(*argv) if self._network else argv
        self._children[name] = await ChildProcess.start(f"{name} of {self.url}", *command)

    async def _wait_ready(self, name: str, unready: Callable[[], Awaitable[str]]) -> None:
        """Wait until nothing is missing; fail at once when any server ends."""
        missing = "not checked yet"
        try:
            async with asyncio.timeout(WITHIN):
                while missing := await unready():
                    for child in self._children.values():
                        _ = child.pid  # raises when it has ended
                    await asyncio.sleep(_CHECK_EVERY)
        except TimeoutError as error:
            raise self._children[name].failure(
                f"was not ready within {WITHIN:g} s ({missing})"
            ) from error


def _drop_half_line(log: Path) -> None:
    """Remove the partial line of a killed server, so that the next one starts a new line."""
    text = log.read_bytes()
    if not text.endswith(b"\n"):
        os.truncate(log, text.rfind(b"\n") + 1)
