"""The pod that asks for a GPU to confirm a validation, on a real kubelet.

A record on the Node, as the scheduler writes it, stands for the validation.
"""

import asyncio
from typing import Final

from libs.contracts.message import decode, encode
from libs.contracts.node import (
    RECORD_ANNOTATION,
    STATE_LABEL,
    VALIDATION_POD_ANNOTATION,
    NodeRecord,
    UpgradeState,
    ValidationPod,
)
from libs.policy.render.validation_pod import APP
from tests.system.nodes.installation import NAMESPACE
from tests.system.nodes.kubectl import Kubectl

WITH_WORKLOAD: Final = {"plugin": {"env": [{"name": "WITH_WORKLOAD", "value": "true"}]}}
"""The section `validator` of a policy that wants the pod."""
_WITHIN: Final = 240.0


async def confirm(kubectl: Kubectl, node: str, *, op: int) -> ValidationPod:
    """Ask for the pod of this validation of a node; return what became of it once it is gone."""
    uid = (await kubectl.get(f"node/{node}"))["metadata"]["uid"]
    order = f"1.{op}"
    record = NodeRecord(
        node_uid=uid,
        epoch=1,
        token=1,
        state=UpgradeState.VALIDATION_REQUIRED,
        validation_pod=order,
    )
    written = f"{RECORD_ANNOTATION}={encode(record).decode()}"
    await kubectl.run("annotate", f"node/{node}", written, "--overwrite")
    pods = ("--namespace", NAMESPACE, "--selector", f"app={APP}")
    deadline = asyncio.get_running_loop().time() + _WITHIN
    while True:
        outcome = await _outcome(kubectl, node)
        if outcome is not None and outcome.is_of(uid, order) and outcome.passed is not None:
            break
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"{outcome}\n{await kubectl.run('describe', 'pods', *pods)}")
        await asyncio.sleep(0.2)
    await kubectl.run("wait", "--for=delete", "pods", *pods, "--timeout=180s")
    return outcome


async def _outcome(kubectl: Kubectl, node: str) -> ValidationPod | None:
    annotations = (await kubectl.get(f"node/{node}"))["metadata"]["annotations"]
    text = annotations.get(VALIDATION_POD_ANNOTATION)
    return None if text is None else decode(ValidationPod, text.encode())


async def end_validation(kubectl: Kubectl, *nodes: str) -> None:
    """Give nodes the state of those in which nothing is to be done, without a record."""
    names = [f"node/{name}" for name in nodes]
    await kubectl.run("annotate", *names, f"{RECORD_ANNOTATION}-")
    done = f"{STATE_LABEL}={UpgradeState.UPGRADE_DONE}"
    await kubectl.run("label", *names, done, "--overwrite")


async def forget(kubectl: Kubectl, *nodes: str) -> None:
    """Take that state away."""
    await kubectl.run("label", *(f"node/{name}" for name in nodes), f"{STATE_LABEL}-")
