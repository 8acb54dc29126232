"""Rollouts on the server under test."""

import msgspec

from libs.contracts.rollout import RolloutStatus
from libs.policy.crds import crd_manifests
from services.scheduler.resources import ROLLOUTS
from tests.component.kube.sandbox import Kube, Sandbox

TYPED = {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}


async def create_rollout(sandbox: Sandbox, kube: Kube) -> str:
    """Create a Rollout without a status; return its name."""
    await sandbox.install(crd_manifests()["rollouts.sluice.dev"])
    name = f"{sandbox.prefix}pool"
    sandbox.delete_at_close(ROLLOUTS, name)
    await kube.create(ROLLOUTS, {**TYPED, "metadata": {"name": name}})
    return name


async def put_status(kube: Kube, name: str, status: RolloutStatus) -> None:
    """Write the status as the scheduler does."""
    metadata = (await kube.get(ROLLOUTS, name)).metadata
    body = {
        **TYPED,
        "metadata": {"name": name, "resourceVersion": metadata.resource_version},
        "status": msgspec.to_builtins(status),
    }
    await kube.replace(ROLLOUTS, body, subresource="status")
