"""Rollouts as people see them: the columns of `kubectl get`."""

from typing import Any

import msgspec
import pytest

from libs.contracts.rollout import Counts, RolloutPhase, RolloutStatus
from libs.kube.client import Kube
from libs.policy.crds import crd_manifests
from services.scheduler.resources import ROLLOUTS
from tests.component.kube.sandbox import Sandbox

NAME = "rollouts.sluice.dev"
TYPED = {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.fixture
async def rollout(sandbox: Sandbox, kube: Kube) -> str:
    """Create a Rollout without a status; return its name."""
    await sandbox.install(crd_manifests()[NAME])
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


async def columns(sandbox: Sandbox, name: str, *, wide: bool = False) -> dict[str, Any]:
    """Return the columns that `kubectl get` shows of this Rollout."""
    _, table = await sandbox.raw_response("GET", ROLLOUTS.path(name=name), accept=TABLE)
    (row,) = table["rows"]
    definitions = table["columnDefinitions"]
    return {
        definition["name"]: cell
        for definition, cell in zip(definitions, row["cells"], strict=True)
        if definition["name"] != "Age" and (wide or not definition["priority"])
    }


async def test_a_rollout_that_has_just_begun_shows_its_version_phase_and_zeros(
    sandbox: Sandbox, kube: Kube, rollout: str
) -> None:
    status = RolloutStatus(
        version="580.95.05", target="3f2a9c1e" * 4, short_target="3f2a9c1e", counts=Counts(total=3)
    )
    await put_status(kube, rollout, status)
    shown = {
        "Name": rollout,
        "Version": "580.95.05",
        "Phase": "Proving",
        "Done": 0,
        "Total": 3,
        "Failed": 0,
        "Brake": "None",
    }
    assert await columns(sandbox, rollout) == shown
    wide = await columns(sandbox, rollout, wide=True)
    assert (wide["Target"], wide["In flight"]) == ("3f2a9c1e", 0)
    assert (await kube.get(ROLLOUTS, rollout)).status == status


async def test_writing_an_unchanged_status_stores_nothing(kube: Kube, rollout: str) -> None:
    status = RolloutStatus(target="t", phase=RolloutPhase.COMPLETE)
    await put_status(kube, rollout, status)
    before = (await kube.get(ROLLOUTS, rollout)).metadata.resource_version
    await put_status(kube, rollout, status)
    assert (await kube.get(ROLLOUTS, rollout)).metadata.resource_version == before
