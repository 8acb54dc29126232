"""Our agents on real nodes, from our image, as the pods that the driver service renders."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from libs.testing.image.build import build, is_quick
from libs.testing.nvml.profiles import H100_80GB
from libs.testing.realnodes.gpus import NodeGpus
from libs.testing.realnodes.ground import Ground
from tests.summary import FIGURE
from tests.system.nodes.agents import (
    AGENTS,
    agent_of,
    ready_after,
    until_agents_are_ready,
    until_services_lead,
)
from tests.system.nodes.installation import Installation, installed
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.usage import cpu_seconds, proportional_mib, waiting_seconds

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
SETTLED_AFTER = 10.0
AT_REST = 20.0

Figure = Callable[[str], None]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Print a line at the end of the run."""
    return lambda line: record_property(FIGURE, line)


@pytest.fixture
async def installation(
    ground: Ground, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Installation]:
    """Sluice without a policy, and its image on every node; each has GPUs."""
    if not is_quick(os.environ):
        pytest.skip("no image of our agents: run `make image`")
    archive = await asyncio.to_thread(build, os.environ, report=lambda _: None)
    for node in ground.nodes:
        await node.import_image(archive)
    machines = [await NodeGpus.insert(node, H100_80GB) for node in ground.nodes]
    async with installed(ground, kubectl, tmp_path) as installation:
        yield installation
    for machine in machines:
        await machine.remove()


@pytest.mark.timeout(300)
async def test_agents_are_ready_as_rendered(
    ground: Ground, kubectl: Kubectl, installation: Installation, figure: Figure
) -> None:
    leads_after = await until_services_lead(installation)
    figure(f"the cluster roles of driver and discovery led {leads_after:.1f} s after their start")
    await installation.apply_policy()
    pods, links = await until_agents_are_ready(installation)
    for name, after in links.items():
        figure(f"{name}: {after:.1f} s after the policy")
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert all("httpGet" in container[probe] for probe in PROBES)
        assert container["resources"]["limits"].keys() == {"memory"}
        (status,) = pod["status"]["containerStatuses"]
        assert status["restartCount"] == 0
    seconds = [after for pod in pods if (after := ready_after(pod)) is not None]
    figure(f"agents were Ready {min(seconds):.0f} to {max(seconds):.0f} s after their creation")
    node = ground.nodes[0]
    here = {
        pod["metadata"]["uid"]: agent_of(pod)
        for pod in pods
        if pod["spec"]["nodeName"] == node.name
    }
    assert sorted(here.values()) == list(AGENTS)
    await asyncio.sleep(SETTLED_AFTER)
    before, waited = cpu_seconds(node, here), waiting_seconds(node, here)
    await asyncio.sleep(AT_REST)
    after, waits = cpu_seconds(node, here), waiting_seconds(node, here)
    memory = proportional_mib(node, here)
    polls = {uid: (waits[uid] - waited[uid]) / AT_REST for uid in here}
    used = {uid: (after[uid] - before[uid]) / AT_REST - polls[uid] for uid in here}
    for uid, name in here.items():
        figure(f"{name}: {memory[uid]:.0f} MiB (PSS), {used[uid]:.2%} of a core at rest")
    figure(
        f"all agents of a node: {sum(memory.values()):.0f} MiB (PSS),"
        f" {sum(used.values()):.2%} of a core at rest, and beside that"
        f" {sum(polls.values()):.2%} for loops of the stand-in that wait for XIDs"
    )
    assert all(memory.values())
