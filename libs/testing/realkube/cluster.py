"""A real control plane as tests use it, from any event loop."""

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from libs.testing.errors import ServerFailed
from libs.testing.netns import NetworkNamespace
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
    """Runs from `start` to `stop`, on an event loop of its own, so it outlives a test's loop."""

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
        reads_of: Sequence[str] = (),
        network: NetworkNamespace | None = None,
    ) -> Self:
        """Start the servers, in this network if one is given; return once a pod can be created.

        `users` maps names to groups, beside `ADMIN`; RBAC decides their rights. Reads by the groups
        in `reads_of` are in the audit log too. On Linux the servers die with this process.
        """
        token_users = {
            name: TokenUser(name=name, token=secrets.token_hex(16), groups=groups)
            for name, groups in {**_GROUPS, **(users or {})}.items()
        }
        plane = ControlPlane(
            binaries=binaries,
            users=token_users,
            reads_of=reads_of,
            network=network,
        )
        kube = cls(plane=plane, kubectl=binaries.kubectl, users=token_users)
        try:
            await kube._thread.run(plane.start())
            kube.version = await kube._thread.run(plane.version())
        except BaseException:
            await kube._clean_up()
            raise
        return kube

    async def stop(self) -> None:
        """Stop and clean up; an error if a server had ended by itself."""
        try:
            await self._thread.run(self._plane.end())
        finally:
            await self._clean_up()

    def problem(self) -> str | None:
        """Return which server has ended by itself, with its last lines; nothing while all run."""
        return self._plane.problem()

    async def restart_apiserver(self) -> None:
        """Kill the API server and start it on the same port and data; return when it is ready."""
        await self._thread.run(self._plane.restart_apiserver())

    async def compact(self, revision: int) -> None:
        """Compact etcd up to this revision.

        The API server answers from its memory while it can: only after `restart_apiserver` do older
        watches, pages and exact lists surely fail with 410.
        """
        await self._thread.run(self._plane.etcd.compact(revision))

    def token(self, user: str = ADMIN) -> str:
        """Return the bearer token of a user."""
        return self._user(user).token

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Return a kubeconfig file of a user."""
        return self._plane.kubeconfig(self._user(user).name)

    def _user(self, user: str) -> TokenUser:
        if user not in self._users:
            raise ServerFailed(
                f"the API server at {self.url} has no user {user!r}, only "
                f"{', '.join(self._users)}: add the user when it is started"
            )
        return self._users[user]

    async def _clean_up(self) -> None:
        try:
            await self._thread.run(self._plane.cleanup())
        finally:
            await self._thread.close()


T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A process that ends without `close` must not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine there; cancelling the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        await self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
