"""Another device plugin in place of ours: an upgrade pauses it, awaits its pod, and lets it return.

Its DaemonSet selects nodes as the GPU Operator's does. A record on the Node, as the scheduler
writes it, stands for the upgrade.
"""

from typing import Any, Final

import msgspec

from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.policy.owners import DEPLOY_PLUGIN
from libs.rollout.views.machine import EvictionExemption
from libs.testing.realnodes.ground import Ground
from services.scheduler.resources import Pod
from services.scheduler.snapshot.pod_view import workload_pod
from tests.system.nodes.installation import NAMESPACE, Installation
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

THEIRS: Final = "nvidia-device-plugin-daemonset"
SELECTED: Final = f"app={THEIRS}"


def their_plugin() -> dict[str, Any]:
    labels = {"app": THEIRS, "app.kubernetes.io/name": "nvidia-device-plugin"}
    spec = pod("", "")["spec"]
    del spec["nodeName"]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": THEIRS, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {**spec, "nodeSelector": {DEPLOY_PLUGIN: "true"}},
            },
        },
    }


async def pod_on(kubectl: Kubectl, node: str) -> Pod:
    """Return their pod on a node, as the scheduler reads it."""
    where = ("--selector", SELECTED, "--field-selector", f"spec.nodeName={node}")
    (found,) = (await kubectl.get("pods", *where))["items"]
    return msgspec.convert(found, Pod)


def exemption(found: Pod, *absent: Writer) -> EvictionExemption:
    view = workload_pod(found, None, namespace=NAMESPACE, absent_agents=frozenset(absent))
    return view.exemption


async def record(kubectl: Kubectl, name: str, *, paused: bool) -> None:
    """Write the record of a node whose operands are paused, or no longer."""
    uid = (await kubectl.get(f"node/{name}"))["metadata"]["uid"]
    written = NodeRecord(node_uid=uid, epoch=1, token=1, paused=paused)
    text = encode(written).decode()
    await kubectl.run("annotate", f"node/{name}", f"{RECORD_ANNOTATION}={text}", "--overwrite")


async def be_replaced_by_another(
    ground: Ground, kubectl: Kubectl, installation: Installation
) -> None:
    """Run another plugin under a policy without ours, and play an upgrade's pause of it."""
    first, second = (node.name for node in ground.nodes)
    await installation.apply_policy(devicePlugin={"enabled": False})
    await kubectl.apply(their_plugin())
    await kubectl.wait("jsonpath={.status.numberReady}=2", f"daemonset/{THEIRS}")
    await kubectl.wait("delete", "daemonset/sluice-device-plugin", "--namespace", NAMESPACE)

    theirs, other = await pod_on(kubectl, first), await pod_on(kubectl, second)
    # An upgrade waits for operands that are paused, and for no other pod of a DaemonSet.
    assert exemption(theirs, Writer.PLUGIN) is EvictionExemption.OPERAND
    assert exemption(theirs) is EvictionExemption.DAEMON_SET

    await record(kubectl, first, paused=True)
    await kubectl.wait("delete", f"pod/{theirs.metadata.name}")
    assert (await pod_on(kubectl, second)).metadata.uid == other.metadata.uid
    await record(kubectl, first, paused=False)
    await kubectl.wait("jsonpath={.status.numberReady}=2", f"daemonset/{THEIRS}")
    assert (await pod_on(kubectl, first)).metadata.uid != theirs.metadata.uid

    await kubectl.run("delete", f"daemonset/{THEIRS}")
    await kubectl.run("annotate", f"node/{first}", f"{RECORD_ANNOTATION}-")
