"""The four servers of a control plane: started in order, killed in any, and nothing left of them.

Lives on one loop. `libs.testing.realkube.cluster` gives it one, and is what tests use.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from libs.testing.child_process import ChildProcess
from libs.testing.ports import HOST, ReservedPort
from libs.testing.realkube import components
from libs.testing.realkube.binaries import Binaries
from libs.testing.realkube.components import PlaneFiles, TokenUser
from libs.testing.realkube.probes import ApiServerProbe, EtcdClient

WITHIN = 60.0
"""Seconds in which a server serves, on the slowest machine."""

ADMIN = "admin"
"""The user who may do everything."""

_EVERY = 0.02
_BEGIN = "-----BEGIN CERTIFICATE-----"


class ControlPlane:
    """Ports and data stay the same from the making of it to `leave`."""

    def __init__(
        self,
        *,
        binaries: Binaries,
        users: Mapping[str, TokenUser],
        node_monitor_grace_period: float,
        reads_of: Sequence[str],
    ) -> None:
        self._binaries = binaries
        self._grace = node_monitor_grace_period
        self._children: dict[str, ChildProcess] = {}
        self._ports: list[ReservedPort] = []
        self.folder = PlaneFiles(Path(tempfile.mkdtemp(prefix="sluice-kube-")))
        self.url = f"https://{HOST}:{self._port()}"
        self.etcd = EtcdClient(f"http://{HOST}:{self._port()}")
        self._peer_url = f"http://{HOST}:{self._port()}"
        self._door = ApiServerProbe(
            url=self.url, ca_file=self.folder.chain, token=users[ADMIN].token
        )
        self._write(users.values(), reads_of)

    async def start(self) -> None:
        """All four; returns when a pod can be created."""
        await self._launch(
            "etcd",
            components.etcd(
                self._binaries, self.folder, client_url=self.etcd.url, peer_url=self._peer_url
            ),
        )
        await self._until("etcd", self.etcd.unready)
        await self._start_apiserver()
        authority = self.folder.chain.read_text().rpartition(_BEGIN)
        self.folder.ca_file.write_text("".join(authority[1:]))
        await self._launch(
            "kube-controller-manager",
            components.controller_manager(
                self._binaries,
                self.folder,
                kubeconfig=self.kubeconfig(components.CONTROLLER_MANAGER),
                node_monitor_grace_period=self._grace,
            ),
        )
        await self._launch(
            "kube-scheduler",
            components.scheduler(self._binaries, kubeconfig=self.kubeconfig(components.SCHEDULER)),
        )
        # The default service account is the controller manager's.
        await self._until("kube-controller-manager", self._door.pods_refused)

    async def _start_apiserver(self) -> None:
        await self._launch(
            "kube-apiserver",
            components.apiserver(self._binaries, self.folder, url=self.url, etcd_url=self.etcd.url),
        )
        await self._until("kube-apiserver", self._door.unready)

    async def restart_apiserver(self) -> None:
        """Without giving it a chance to say or write anything."""
        await self.kill("kube-apiserver")
        await asyncio.to_thread(_drop_half_line, self.folder.audit_log)
        await self._start_apiserver()
        await self._until("kube-apiserver", self._door.pods_refused)

    async def kill(self, name: str) -> None:
        """One of them; an error when it had ended by itself."""
        child = self._children.pop(name)
        try:
            await child.end(signal.SIGKILL, code=-signal.SIGKILL)
        finally:
            await child.destroy()

    async def end(self) -> None:
        """Kill all four; an error when one had ended by itself."""
        # Those first that would complain of the others' end.
        for name in reversed(list(self._children)):
            await self.kill(name)

    async def cleanup(self) -> None:
        """Whatever is left is taken away, and nothing is complained of."""
        for child in self._children.values():
            await child.destroy()
        for port in self._ports:
            port.release()
        await asyncio.to_thread(shutil.rmtree, self.folder.root)

    async def version(self) -> str:
        """What the server says that it is."""
        return await self._door.version()

    def kubeconfig(self, user: str) -> Path:
        """Where this user's is."""
        return self.folder.root / f"{quote(user, safe='')}.kubeconfig"

    def _port(self) -> int:
        self._ports.append(ReservedPort())
        return self._ports[-1].number

    def _write(self, users: Iterable[TokenUser], reads_of: Sequence[str]) -> None:
        self.folder.tokens.write_text(components.tokens(users))
        self.folder.audit_policy.write_text(components.audit_policy(reads_of))
        for user in users:
            text = components.kubeconfig(user, url=self.url, ca_file=self.folder.ca_file)
            self.kubeconfig(user.name).write_text(text)

    async def _launch(self, name: str, argv: list[str]) -> None:
        self._children[name] = await ChildProcess.start(f"{name} of {self.url}", *argv)

    async def _until(self, name: str, unready: Callable[[], Awaitable[str]]) -> None:
        """Until it says nothing; at once an error when anything that was started ends."""
        missing = "nothing was asked yet"
        try:
            async with asyncio.timeout(WITHIN):
                while missing := await unready():
                    for child in self._children.values():
                        _ = child.pid  # raises when it has ended
                    await asyncio.sleep(_EVERY)
        except TimeoutError as error:
            raise self._children[name].failure(
                f"was not ready within {WITHIN:g} s ({missing})"
            ) from error


def _drop_half_line(log: Path) -> None:
    """What a killed server had not finished to write, before the next one goes on in that line."""
    text = log.read_bytes()
    if not text.endswith(b"\n"):
        os.truncate(log, text.rfind(b"\n") + 1)
