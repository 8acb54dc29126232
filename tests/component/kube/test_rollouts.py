"""Rollouts as people see them: the columns of `kubectl get`."""

from typing import Any

import pytest

from libs.contracts.rollout import Counts, RolloutPhase, RolloutStatus
from services.scheduler.resources import ROLLOUTS
from tests.component.kube.rollouts import create_rollout, put_status
from tests.component.kube.sandbox import Kube, Sandbox

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.fixture
async def rollout(sandbox: Sandbox, kube: Kube) -> str:
    return await create_rollout(sandbox, kube)


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
        version="580.95.05",
        target="3f2a9c1e" * 4,
        short_target="3f2a9c1e",
        progress="0/3",
        counts=Counts(total=3),
    )
    await put_status(kube, rollout, status)
    shown = {
        "Name": rollout,
        "Target": "580.95.05",
        "Phase": "Proving",
        "Done": "0/3",
        "In flight": 0,
        "Failed": 0,
        "Waiting": 0,
        "ETA": "",
        "Because": "",
    }
    assert await columns(sandbox, rollout) == shown
    wide = await columns(sandbox, rollout, wide=True)
    assert (wide["Digest"], wide["Brake"]) == ("3f2a9c1e", "None")
    assert (await kube.get(ROLLOUTS, rollout)).status == status


async def test_writing_an_unchanged_status_stores_nothing(kube: Kube, rollout: str) -> None:
    status = RolloutStatus(target="t", phase=RolloutPhase.COMPLETE)
    await put_status(kube, rollout, status)
    before = (await kube.get(ROLLOUTS, rollout)).metadata.resource_version
    await put_status(kube, rollout, status)
    assert (await kube.get(ROLLOUTS, rollout)).metadata.resource_version == before
