"""A real control plane as tests use it, from any loop.

Must know nothing of nodes, of what the tests do, or of where the binaries come from.
"""

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from libs.testing.errors import ServerFailed
from libs.testing.realkube import components
from libs.testing.realkube.binaries import Binaries
from libs.testing.realkube.components import TokenUser
from libs.testing.realkube.control_plane import ADMIN, ControlPlane

_GROUPS: Mapping[str, Sequence[str]] = {
    ADMIN: [components.MASTERS],
    components.CONTROLLER_MANAGER: [],
    components.SCHEDULER: [],
}


class RealKube:
    """From `start` to `stop`; its servers live on a loop of their own, and outlive a test's."""

    def __init__(
        self, *, plane: ControlPlane, kubectl: Path, users: Mapping[str, TokenUser]
    ) -> None:
        self._plane = plane
        self._users = users
        self._thread = LoopThread(f"control plane at {plane.url}")
        self.kubectl = kubectl
        self.url = plane.url
        self.ca_file = plane.folder.ca_file
        self.audit_log = plane.folder.audit_log
        self.version = ""

    @classmethod
    async def start(
        cls,
        *,
        binaries: Binaries,
        users: Mapping[str, Sequence[str]] | None = None,
        node_monitor_grace_period: float = 40.0,
        reads_of: Sequence[str] = (),
    ) -> Self:
        """`users` are names with their groups, beside `ADMIN`; what they may do, RBAC says. What
        the groups `reads_of` read is in the audit log too.

        Returns when a pod can be created. On Linux it dies with this process, however that ends.
        """
        known = {
            name: TokenUser(name=name, token=secrets.token_hex(16), groups=groups)
            for name, groups in {**_GROUPS, **(users or {})}.items()
        }
        plane = ControlPlane(
            binaries=binaries,
            users=known,
            node_monitor_grace_period=node_monitor_grace_period,
            reads_of=reads_of,
        )
        kube = cls(plane=plane, kubectl=binaries.kubectl, users=known)
        try:
            await kube._thread.run(plane.start())
            kube.version = await kube._thread.run(plane.version())
        except BaseException:
            await kube._leave()
            raise
        return kube

    async def stop(self) -> None:
        """Leaves nothing behind; an error when a server had ended by itself."""
        try:
            await self._thread.run(self._plane.end())
        finally:
            await self._leave()

    async def restart_apiserver(self) -> None:
        """Kill it and start it again on the same port and data; returns when it is ready."""
        await self._thread.run(self._plane.restart_apiserver())

    async def compact(self, revision: int) -> None:
        """Let etcd forget what was before this revision.

        The API server answers from its memory as long as it can: only after `restart_apiserver`
        are watches, pages and exact lists from before surely 410.
        """
        await self._thread.run(self._plane.etcd.compact(revision))

    def token(self, user: str = ADMIN) -> str:
        """The bearer token of somebody who was named at the start."""
        return self._known(user).token

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A file for kubectl and other clients."""
        return self._plane.kubeconfig(self._known(user).name)

    def _known(self, user: str) -> TokenUser:
        if user not in self._users:
            raise ServerFailed(
                f"the API server at {self.url} knows no user {user!r}, only "
                f"{', '.join(self._users)}: name him when it is started"
            )
        return self._users[user]

    async def _leave(self) -> None:
        try:
            await self._thread.run(self._plane.cleanup())
        finally:
            await self._thread.close()


T = TypeVar("T")


class LoopThread:
    """Begins to run when it is made, and runs until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A process that ends without `close` must not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result, on whatever loop the caller is; a caller that is cancelled cancels it."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(running)

    async def close(self) -> None:
        """Nothing may run there any more."""
        await self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
