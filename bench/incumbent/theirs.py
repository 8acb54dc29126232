"""The incumbent's column: its library in a Go program, and DaemonSets like its operator's."""

from pathlib import Path
from typing import Any, Final

from bench.incumbent.column import Column, Measurement
from bench.incumbent.ground import Ground
from bench.incumbent.operator_pods import (
    DEPLOY_DRIVER,
    DEPLOY_VALIDATOR,
    DRIVER_APP,
    MANAGER,
    NAMESPACE,
    VALIDATOR,
    VALIDATOR_APP,
)
from bench.incumbent.plan import INCUMBENT, OLD, REQUEUE, STAGES, Stage, cluster_policy
from bench.incumbent.world import DRIVER
from demo.admin import POLICY
from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.testing.child_process import ChildProcess

COLUMN: Final = "controller"
_DAEMON_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
_READY_WITHIN = 180.0


async def measure(ground: Ground, program: Path) -> list[Column]:
    """Bring up the fleet on the old driver, then measure its upgrades."""
    await ground.person.apply(cluster_policy(ground.plan))
    await ground.person.apply(_driver(OLD))
    await ground.person.apply(_validator())
    await ground.start_machines("operator")
    await ground.until("every operand is ready", lambda: _all_ready(ground), within=_READY_WITHIN)
    await ground.start_workloads()
    controller = await ChildProcess.start(
        "upgrade controller",
        str(program),
        f"--kubeconfig={ground.up.paths.kubeconfig(INCUMBENT)}",
        f"--namespace={NAMESPACE}",
        f"--requeue={REQUEUE / ground.plan.factor}s",
    )
    try:
        await ground.until("every node is done", lambda: _all_done(ground), within=_READY_WITHIN)
        return [await _upgrade(ground, stage, controller.pid) for stage in STAGES]
    finally:
        await controller.destroy()


async def _upgrade(ground: Ground, stage: Stage, pid: int) -> Column:
    change = {"spec": _driver(stage.target)["spec"]}
    return await Measurement(ground, stage, pids={COLUMN: pid}).run(
        lambda: ground.merge(f"{_DAEMON_SETS}/{DRIVER_APP}", change),
        accounts={COLUMN: [INCUMBENT]},
    )


async def clear(ground: Ground) -> None:
    """Remove everything of this column."""
    for name in (DRIVER_APP, VALIDATOR_APP):
        await ground.delete("apps/v1", "DaemonSet", name, namespace=NAMESPACE)
    await ground.delete("nvidia.com/v1", "ClusterPolicy", POLICY)
    await ground.clear()


async def _all_ready(ground: Ground) -> bool:
    pods = await ground.pods(NAMESPACE)
    ready = [
        pod
        for pod in pods
        for condition in pod["status"].get("conditions", ())
        if (condition["type"], condition["status"]) == ("Ready", "True")
    ]
    return len(ready) == 2 * ground.plan.nodes


async def _all_done(ground: Ground) -> bool:
    nodes = await ground.nodes()
    states = [node.metadata.labels.get(STATE_LABEL) for node in nodes.values()]
    return set(states) == {UpgradeState.UPGRADE_DONE}


def _driver(version: str) -> dict[str, Any]:
    image = f"nvcr.example/nvidia/driver:{version}"
    return _daemon_set(
        DRIVER_APP,
        DEPLOY_DRIVER,
        strategy="OnDelete",
        spec={
            "initContainers": [{"name": MANAGER, "image": "nvcr.example/nvidia/manager:1"}],
            "containers": [{"name": DRIVER, "image": image}],
        },
    )


def _validator() -> dict[str, Any]:
    container = {"name": VALIDATOR, "image": "nvcr.example/nvidia/validator:1"}
    return _daemon_set(
        VALIDATOR_APP,
        DEPLOY_VALIDATOR,
        strategy="RollingUpdate",
        spec={"containers": [container]},
    )


def _daemon_set(app: str, deploy: str, *, strategy: str, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": app}
    pod = {"nodeSelector": {deploy: "true"}, "tolerations": [{"operator": "Exists"}], **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": app, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": strategy},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
