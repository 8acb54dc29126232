"""The real control plane of `make kube` in place of the simulated API server.

Its users are those of the simulated one, with the rights that they have in a cluster: services act
as the accounts that the installation creates. Machines stay simulated.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from demo.admin import USER, DemoAdmin
from demo.paths import NAMESPACE, DemoPaths, kubelet_users, service_account
from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.kube.auditlog import AuditLogConverter
from libs.kube.errors import NotFound, TooManyRequests
from libs.policy.installation import service_account_of
from libs.policy.kinds import KINDS
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal
from libs.testing.realkube.binaries import find_binaries
from libs.testing.realkube.cluster import RealKube

_OURS: Final = f"system:serviceaccounts:{NAMESPACE}"
"""The group of all our service accounts."""
_MASTERS: Final = "system:masters"
_NODES: Final = "system:nodes"
_POLL_SECONDS: Final = 0.2
_SERVED_SECONDS: Final = 120.0


@asynccontextmanager
async def real_plane(paths: DemoPaths, nodes: Sequence[str]) -> AsyncGenerator[RealKube]:
    """Start the control plane, with a kubeconfig for each user but the services."""
    found = find_binaries(os.environ)
    if found.binaries is None:
        raise Fatal(found.explanation)
    users = users_of(nodes)
    plane = await RealKube.start(binaries=found.binaries, users=users, reads_of=[_OURS])
    try:
        for user in users:
            config = plane.kubeconfig(user).read_text()
            await asyncio.to_thread(paths.kubeconfig(user).write_text, config)
        yield plane
    finally:
        await plane.stop()


def users_of(nodes: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the groups of the person and of each machine's users."""
    found: dict[str, Sequence[str]] = {USER: [_MASTERS]}
    for node in nodes:
        own, shared = kubelet_users(node)
        # Kubelets that share a process share a watch of all pods, which no real kubelet has.
        found |= {own: [_NODES], shared: [_MASTERS]}
    return found


async def install_on(
    plane: RealKube,
    admin: DemoAdmin,
    paths: DemoPaths,
    *,
    writers: Sequence[Writer],
    clock: Clock,
) -> None:
    """Install with rights, and create a kubeconfig with a token of its own for each service."""
    await admin.install(with_rights=True)
    until = clock.monotonic() + _SERVED_SECONDS
    for kind in KINDS.values():
        while not await _is_served(admin, f"/apis/{kind.api_version}/{kind.plural}"):
            if clock.monotonic() > until:
                raise Fatal(f"the API server does not serve {kind.name} in time")
            await clock.sleep(_POLL_SECONDS)
    for writer in writers:
        token = await admin.token_of(service_account_of(writer))
        config: dict[str, Any] = msgspec.json.decode(plane.kubeconfig().read_text())
        config["users"][0]["user"] = {"token": token}
        file = paths.kubeconfig(service_account(writer))
        await asyncio.to_thread(file.write_bytes, msgspec.json.encode(config))


async def _is_served(admin: DemoAdmin, path: str) -> bool:
    try:
        await admin.read(path)
    except (NotFound, TooManyRequests):  # the server still creates its storage
        return False
    return True


def write_revisions(audit_log: Path, file: Path) -> None:
    """Write the journal that the audit log has, in the form of the simulated API server."""
    converter = AuditLogConverter(str(audit_log))
    revisions = (*converter.feed(audit_log.read_bytes()), *converter.flush())
    file.write_bytes(b"".join(encode(revision) + b"\n" for revision in revisions))
