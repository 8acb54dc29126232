"""The chart on the real API server, which validates every object without storing it."""

import asyncio
import json
import secrets
from pathlib import Path

import pytest

from libs.testing.realkube.cluster import RealKube
from tests.component.chart.conftest import Render, as_list
from tests.component.chart.rendered import FOREIGN, VALUES, Object, pods
from tests.system.nodes.kubectl import Kubectl
from tests.unit.policy.situations import SETTINGS, Situation, cluster_policy, node

LABEL = "pod-security.kubernetes.io"


@pytest.fixture(scope="module")
def namespace(definitions: RealKube) -> str:
    """Create a namespace that allows restricted pods only, and warns of others.

    Nothing is stored in it, so that all tests share it.
    """
    name = f"chart-{secrets.token_hex(4)}"
    labels = {f"{LABEL}/{mode}": "restricted" for mode in ("enforce", "warn")}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    asyncio.run(Kubectl(definitions).apply(body))
    return name


@pytest.fixture(scope="module")
def accepted() -> set[str]:
    """The objects that the server has accepted; most files have most of them in common."""
    return set()


@pytest.mark.parametrize("file", VALUES, ids=[file.stem for file in VALUES])
async def test_the_server_accepts_every_object(
    cluster: Kubectl, render: Render, namespace: str, accepted: set[str], file: Path
) -> None:
    """With strict fields; in a restricted namespace no workload causes a warning."""
    rendered = render("--values", str(file), namespace=namespace)
    found = {json.dumps(each): each for each in rendered if each["kind"] not in FOREIGN}
    objects = [each for text, each in found.items() if text not in accepted]
    if not objects:
        return
    output = await cluster.run(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=as_list(objects),
    )
    lines = output.splitlines()
    assert "Warning" not in output
    assert len([line for line in lines if line.endswith("(server dry run)")]) == len(objects)
    accepted |= found.keys()


async def test_a_restricted_namespace_runs_the_pods(
    cluster: Kubectl, render: Render, namespace: str
) -> None:
    """The pods themselves are refused or accepted, not only their owners."""
    # A StatefulSet adds the volume of its claim to each pod.
    (without_claim,) = (file for file in VALUES if file.stem == "without_a_volume")
    objects = render("--values", str(without_claim), namespace=namespace)
    templates = [template for _, template in pods(objects)]
    bodies: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{index}", "namespace": namespace},
            # The accounts are not there: the namespace's own stands in.
            "spec": {**template["spec"], "serviceAccountName": "default"},
        }
        for index, template in enumerate(templates)
    ]
    await cluster.succeeds("get", "serviceaccount", "default", "--namespace", namespace)
    output = await cluster.run("create", "--dry-run=server", "-f", "-", stdin=as_list(bodies))
    assert len(output.splitlines()) == len(bodies) == 10


AGENTS = {
    "sluice-discovery-agent",
    "sluice-driver-agent",
    "sluice-device-plugin",
    "sluice-validator-agent",
    "sluice-telemetry-agent",
}


async def test_a_restricted_namespace_refuses_agents_only(cluster: Kubectl, namespace: str) -> None:
    """They change the host, hence the label of their namespace in docs/install.md."""
    rendering = Situation([cluster_policy()], [node("any")]).rendering(SETTINGS)
    templates = {
        each.object["metadata"]["name"]: each.object["spec"]["template"]
        for each in rendering.objects
        if each.object["kind"] == "DaemonSet"
    }
    assert set(templates) >= AGENTS
    await cluster.succeeds("get", "serviceaccount", "default", "--namespace", namespace)
    for name in sorted(AGENTS):
        pod: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**templates[name]["spec"], "serviceAccountName": "default"},
        }
        with pytest.raises(AssertionError, match='violates PodSecurity "restricted'):
            await cluster.run("create", "--dry-run=server", "-f", "-", stdin=as_list([pod]))
