"""`uninstall` leaves a real API server as it was before the installation."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from libs.contracts.node import LeaseOwner
from libs.policy.crds import crd_manifests
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.helm import find_helm
from libs.testing.realkube.cluster import RealKube
from services.driver.uninstall.operands import RemovalRefused
from tests.component.chart.conftest import run
from tests.component.chart.rendered import CHART
from tests.component.driver.uninstall.world import Site, site_of
from tests.component.kube.sandbox import Sandbox
from tests.component.kube.servers import real
from tests.run.plan import GroundKind
from tests.support import eventually

pytestmark = GroundKind.CONTROL_PLANE.marker()


@pytest.fixture
async def sites(plane: RealKube) -> AsyncIterator[tuple[Site, KubeletFleet]]:
    helm = find_helm(os.environ)
    if helm is None:
        pytest.skip("Helm is not built: run `make helm`")
    async with real(plane) as server:
        sandbox = Sandbox(server, token=os.urandom(4).hex())
        await sandbox.open()
        try:
            for definition in crd_manifests().values():
                await sandbox.install(definition)
            # The test itself writes what the scheduler would.
            without = ("--set", "admission.enabled=false")
            words = ("template", "sluice", str(CHART), "--namespace", sandbox.namespace)
            rendered = run(helm, *words, *without)
            async with site_of(plane, server, sandbox, rendered) as found:
                yield found
                await found[0].remove_rights()
                await found[0].remove_chart()
        finally:
            await sandbox.close()


@pytest.fixture
def site(sites: tuple[Site, KubeletFleet]) -> Site:
    return sites[0]


async def test_nothing_is_left_in_the_cluster(site: Site) -> None:
    await site.create_driver("people", nodeSelector={"of": "nothing"})
    await site.edit_by_hand()
    before = await site.snapshot()
    await site.install()
    await site.use()
    used = await site.snapshot()
    names = {key.rpartition("/")[2] for key in used.keys() - before.keys()}
    assert {"sluice-scheduler", "sluice-driver-agent", "sluice-nats-ca", "gpu-0", "pool"} <= names
    assert used["NVIDIADriver /people"]["status"]
    changed = [key for key in before if used[key] != before[key]]
    assert {f"Node /{name}" for name in site.nodes} <= set(changed)

    await site.uninstall()
    assert await site.daemon_sets() == []
    await site.remove_chart()
    await site.until_as(before)
    # Only a driver that no agent holds open can be unloaded.
    *agents, driver, last = await site.removed_daemon_sets()
    assert len(agents) == 4
    assert driver.startswith("sluice-driver-")
    assert last == "sluice-driver-agent"


async def test_nodes_whose_driver_stays_are_named_with_the_pods_that_use_it(site: Site) -> None:
    await site.install()
    await site.use()
    first, _ = site.nodes
    await site.use_gpu("train", first)
    assert await site.uninstall() == {first: [f"{site.namespace}/train"]}


async def test_it_is_refused_while_a_node_is_being_changed(site: Site) -> None:
    await site.install()
    first, second = site.nodes
    await site.lease(first, LeaseOwner.HUMAN)
    await site.lease(second, LeaseOwner.UPGRADE)
    before = await site.snapshot()
    with pytest.raises(RemovalRefused, match=f"changing these nodes: {second}. Wait until"):
        await site.uninstall()
    after = await site.snapshot()
    hook = {key for key in after.keys() - before.keys() if "sluice-uninstall" in key}
    assert {key: after[key] for key in after.keys() - hook} == before


async def test_an_upgrade_that_begins_meanwhile_gets_its_scheduler_back(site: Site) -> None:
    await site.install()
    deployment = ("--namespace", site.namespace, "deployment", "sluice-scheduler")
    before = await site.kubectl.get(*deployment)
    # The scheduler's last pod, which ends only when it is told to.
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "last",
            "namespace": site.namespace,
            "labels": {
                "app.kubernetes.io/name": "sluice",
                "app.kubernetes.io/component": "scheduler",
            },
        },
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    }
    await site.kubectl.apply(pod)
    running = asyncio.create_task(site.uninstall())

    async def is_alone() -> bool:
        pods = [each for each in await site.pods() if each.startswith("sluice-scheduler")]
        return not pods

    await eventually(is_alone, within=60, every=0.1)
    await site.lease(site.nodes[0], LeaseOwner.UPGRADE)
    await site.kubectl.run("--namespace", site.namespace, "delete", "pod", "last")
    with pytest.raises(RemovalRefused, match=site.nodes[0]):
        await running
    assert (await site.kubectl.get(*deployment))["spec"] == before["spec"]


async def test_a_host_that_is_not_undone_is_named_and_the_next_run_goes_on(
    sites: tuple[Site, KubeletFleet],
) -> None:
    site, fleet = sites
    await site.install()
    await site.use()
    lost = site.nodes[1]
    fleet[lost].power_off()
    with pytest.raises(RemovalRefused, match=rf"on {lost}\. Look at their nodes"):
        await site.uninstall(within=15)
    await site.kubectl.run("delete", "node", lost)
    # The control plane does this itself, a minute after a Node is gone.
    await site.kubectl.run(
        *("--namespace", site.namespace, "delete", "pods", "--force"),
        *("--field-selector", f"spec.nodeName={lost}"),
    )
    await site.uninstall()
    assert await site.daemon_sets() == []
