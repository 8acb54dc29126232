"""Our driver agent's code configures the containerd of a real node, and takes that back.

It runs as our image in a pod with the node's root and processes, as the agent does. Between the
write and the restart it is killed once.
"""

import asyncio
import json
import os
import tomllib
from copy import deepcopy
from typing import Any, Final

import pytest

from libs.host.runtimes.common import HANDLERS
from libs.host.runtimes.containerd import SECTIONS
from libs.testing.image.build import IMAGE, build, is_quick
from libs.testing.realnodes.build import Containerd
from libs.testing.realnodes.gpus import HOST
from libs.testing.realnodes.ground import Ground
from libs.testing.realnodes.node import Node
from services.driver.node.runtime_attempt import PATH, WITHIN
from tests.system.nodes.conftest import CONFIG
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

FACTS: Final = "/run/facts.json"
LOOK: Final = f"""
import asyncio, os, signal, sys
import msgspec
from libs.host.gpus.nvml import NvmlGpus
from libs.host.machine import InlineOffload, Machine
from libs.host.runtimes.live import CriRuntime
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from services.driver.node.runtime import RuntimeKeeper
from services.driver.node.runtime_steps import RuntimeSettings

class Killed(CriRuntime):
    def stop(self, pid):
        os.kill(os.getpid(), signal.SIGKILL)

how = sys.argv[1]
tree = Tree("{HOST}")
machine = Machine(
    tree=tree,
    offload=InlineOffload(),
    gpus=NvmlGpus(tree),
    runtime=(Killed if how == "killed" else CriRuntime)(tree),
)
settings = RuntimeSettings(configure=how != "undo", restart="signal")
keeper = RuntimeKeeper(machine=machine, clock=SystemClock(), settings=settings)
asyncio.run(keeper.look())
# A log of containerd may lack what a container wrote while containerd was away.
tree.write("{FACTS}", msgspec.json.encode(keeper.facts))
"""
FILES: Final = "cd /etc && find containerd -exec stat -c '%n %a %u %g %F' {} + | sort"
CONTENT: Final = "cd /etc && find containerd -type f -exec sha256sum {} + | sort"


def agent(node: Node, how: str) -> dict[str, Any]:
    """Return a pod that looks after the node's runtime once."""
    wanted = pod(f"agent-{how}", node.name)
    container = wanted["spec"]["containers"][0]
    container |= {
        "image": IMAGE,
        "command": ["python3", "-c", LOOK, how],
        "resources": {},
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer"}
        ],
    }
    wanted["spec"] |= {
        "hostPID": True,
        "restartPolicy": "Never",
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
    }
    return wanted


async def look(kubectl: Kubectl, node: Node, how: str) -> dict[str, Any] | None:
    """Return the facts that the agent's code found in the end; None if it was killed."""
    await kubectl.apply(agent(node, how))
    name = f"pod/agent-{how}"
    await kubectl.wait("jsonpath={.status.containerStatuses[0].state.terminated}", name)
    (status,) = (await kubectl.get(name))["status"]["containerStatuses"]
    code = status["state"]["terminated"]["exitCode"]
    assert code == (137 if how == "killed" else 0), await kubectl.run("logs", name)
    return None if how == "killed" else json.loads(await node.run("cat", FACTS))


async def dump(node: Node) -> dict[str, Any]:
    """Return what containerd takes from its files."""
    return tomllib.loads(
        await node.run("sh", "-c", "/opt/containerd/containerd config dump 2>/dev/null")
    )


async def state(node: Node) -> tuple[str, str]:
    return await node.run("sh", "-c", FILES), await node.run("sh", "-c", CONTENT)


async def pid(node: Node) -> str:
    return await node.run("cat", "/run/containerd.pid")


@pytest.mark.soak(
    "it takes 12 CPU seconds; in each run the same is played on containerd 2, and 1.7 itself reads"
    " what we make of its configuration in test_containerd_config.py"
)
async def test_containerd_1_7_gets_the_handlers_and_is_as_before_in_the_end(
    node_1_7: Node, kubectl_1_7: Kubectl
) -> None:
    await _play(kubectl_1_7, node_1_7, Containerd.V1_7)


async def test_containerd_2_gets_the_handlers_and_is_as_before_in_the_end(
    ground: Ground, kubectl: Kubectl
) -> None:
    await _play(kubectl, ground.nodes[0], Containerd.V2)


async def _play(kubectl: Kubectl, node: Node, containerd: Containerd) -> None:
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    await node.import_image(await asyncio.to_thread(build, os.environ, report=lambda _: None))
    await node.run("sed", "-i", "1i# Written by hand.", CONFIG)
    await kubectl.apply(pod("running", node.name))
    await kubectl.wait("condition=Ready", "pod/running")
    # Agents of earlier tests may have configured it.
    await look(kubectl, node, "undo")
    await kubectl.run("delete", "pod/agent-undo")
    await _configure_and_take_back(kubectl, node, containerd)
    (status,) = (await kubectl.get("pod/running"))["status"]["containerStatuses"]
    assert (status["restartCount"], "running" in status["state"]) == (0, True)
    hows = ("killed", "configure", "undo")
    await kubectl.run("delete", "pod/running", *(f"pod/agent-{how}" for how in hows))


async def let_a_minute_pass(node: Node) -> None:
    """Make the attempt of the killed agent older, which the next agent respects for a minute."""
    attempt = json.loads(await node.run("cat", PATH))
    attempt["at"] -= WITHIN
    await node.run("sh", "-c", f"echo '{json.dumps(attempt)}' > {PATH}")


async def _configure_and_take_back(kubectl: Kubectl, node: Node, containerd: Containerd) -> None:
    before, files, first = await dump(node), await state(node), await pid(node)
    assert await look(kubectl, node, "killed") is None
    assert (await state(node), await pid(node)) != (files, first)
    assert await pid(node) == first
    await let_a_minute_pass(node)
    facts = await look(kubectl, node, "configure")
    assert facts == {"name": "containerd", "handlers": list(HANDLERS), "cdi": True}
    second = await pid(node)
    assert second != first
    await kubectl.apply(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"},
            "handler": "nvidia",
        }
    )
    by_handler = pod("by-handler", node.name)
    by_handler["spec"]["runtimeClassName"] = "nvidia"
    await kubectl.apply(by_handler)
    await kubectl.wait("condition=Ready", "pod/by-handler")
    assert _only_ours(before, await dump(node), 2 if containerd is Containerd.V1_7 else 3)
    await kubectl.run("delete", "pod/agent-configure")
    assert await look(kubectl, node, "configure") == facts
    assert await pid(node) == second
    assert (await look(kubectl, node, "undo") or {}).get("handlers", []) == []
    assert await pid(node) != second
    assert (await state(node), await dump(node)) == (files, before)
    await kubectl.run("delete", "pod/by-handler", "runtimeclass/nvidia")


def _only_ours(before: dict[str, Any], after: dict[str, Any], version: int) -> bool:
    """Return whether the two differ in CDI and the handlers alone."""
    runtimes = after["plugins"][SECTIONS[version]]["containerd"]["runtimes"]
    for handler in HANDLERS:
        runtimes.pop(handler)
    return _without_cdi(before, version) == _without_cdi(after, version)


def _without_cdi(dumped: dict[str, Any], version: int) -> dict[str, Any]:
    rest = deepcopy(dumped)
    rest["plugins"][SECTIONS[version]].pop("enable_cdi", None)
    rest.pop("imports")
    return rest
