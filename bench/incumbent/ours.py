"""Our column: our services as processes, and our agents on the same machines."""

from typing import Any, Final

import msgspec

from bench.incumbent.column import Column, Measurement
from bench.incumbent.ground import Ground
from bench.incumbent.plan import FAILURE_THRESHOLD, OLD, STAGES, Stage, cluster_policy
from demo.admin import POOL, path_of
from demo.environment import SERVICES
from demo.paths import service_account
from libs.contracts.identities import Writer
from libs.contracts.rollout import RolloutPhase
from libs.kube.errors import NotFound
from libs.policy.kinds.rollout import ROLLOUT

SCHEDULER: Final = "scheduler"
OTHERS: Final = "other services"
_READY_WITHIN = 400.0


async def measure(ground: Ground) -> list[Column]:
    """Bring up the fleet on the old driver, then measure its upgrades."""
    await ground.person.apply(_strategy())
    await ground.person.apply(cluster_policy(ground.plan))
    await ground.up.start_sign_in(ground.person)
    for service in SERVICES:
        await ground.up.start_service(service)
    await ground.up.processes.wait_ready(*(service.writer for service in SERVICES))
    await ground.start_machines("sluice")
    await ground.until("every node runs", lambda: _all_run(ground), within=_READY_WITHIN)
    await ground.start_workloads()
    return [await _upgrade(ground, stage) for stage in STAGES]


async def _upgrade(ground: Ground, stage: Stage) -> Column:
    processes = ground.up.processes.processes.items()
    pids = {str(name): each.child.pid for name, each in processes if name != "machines"}
    others = [service.writer for service in SERVICES if service.writer is not Writer.SCHEDULER]
    return await Measurement(ground, stage, pids=pids).run(
        lambda: ground.person.set_driver_version(stage.target),
        accounts={
            SCHEDULER: [service_account(Writer.SCHEDULER)],
            OTHERS: [service_account(writer) for writer in others],
        },
    )


async def _all_run(ground: Ground) -> bool:
    try:
        body = await ground.kube.request(
            "GET", path_of(ROLLOUT.api_version, ROLLOUT.name, name=POOL)
        )
    except NotFound:
        return False
    status = msgspec.json.decode(body).get("status", {})
    if status.get("phase") != RolloutPhase.COMPLETE:
        return False
    return all(ground.version(name) == OLD for name in ground.plan.names)


def _strategy() -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "RolloutStrategy",
        "metadata": {"name": "bench"},
        "spec": {"pool": POOL, "failureThreshold": FAILURE_THRESHOLD},
    }
