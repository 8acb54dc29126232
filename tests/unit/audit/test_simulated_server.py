"""The audit of a journal that the simulated API server wrote, with its field ownership."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from libs.audit import AuditJournal, AuditResult, PoolFacts, judge
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.message import encode
from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    MANAGER,
    RECORD_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    Operation,
)
from libs.contracts.paths import DRIVER_CONTAINER
from libs.contracts.reports import Evidence, Outcome, Result
from libs.contracts.rollout import InFlight
from libs.kube.client import Kube, Preconditions
from libs.kube.errors import AlreadyExists, Conflict
from libs.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from libs.kube.views import format_time
from libs.policy.crds import crd_manifests
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run
from services.scheduler.resources import ROLLOUTS
from tests.builders import objects
from tests.builders.objects import container

POOL, TARGET, LABEL = "clusterpolicy-main", "t2", "main-t2"


class AuditedCluster:
    """A simulated API server with clients for a person, a kubelet and the scheduler."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.person, self.kubelet, self.scheduler = (
            Kube(self.server.transport(user=name), manager=name, clock=sim.clock)
            for name in ("kubectl", "kubelet", MANAGER)
        )
        self.records: dict[str, NodeRecord] = {}
        self.entries: list[Entry] = []

    async def node(self, name: str) -> None:
        manifest = {
            "metadata": {"name": name, "labels": {DRIVER_LABEL: "main-t1"}},
            # A server drops the whole spec with our cordon if no other manager owns a field of it.
            "spec": {"providerID": f"rack://{name}"},
        }
        node = await self.kubelet.create(NODES, manifest)
        status = {
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"bootID": "boot"},
            }
        }
        await self.kubelet.merge(
            NODES, name, status, resource_version=node.metadata.resource_version,
            subresource="status",
        )  # fmt: skip
        self.records[name] = NodeRecord(node_uid=node.metadata.uid, epoch=1, token=0)

    async def edit(self, name: str, change: dict[str, Any]) -> None:
        node = await self.person.get(NODES, name)
        await self.person.merge(
            NODES, name, change, resource_version=node.metadata.resource_version
        )

    async def apply(self, name: str, *, cordon: bool, lease: int = 0, **changes: Any) -> None:
        """Apply all fields that we own."""
        node = await self.scheduler.get(NODES, name)
        record = self.records[name] = replace(self.records[name], **changes)
        annotations = {RECORD_ANNOTATION: encode(record).decode()}
        if lease:
            node_lease = NodeLease(
                node_uid=node.metadata.uid, owner=LeaseOwner.UPGRADE, token=lease, since=0.0
            )
            annotations[LEASE_ANNOTATION] = encode(node_lease).decode()
        labels = {STATE_LABEL: record.state}
        if record.started or record.evidence:
            labels[DRIVER_LABEL] = LABEL
        manifest: dict[str, Any] = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations}
        }
        if cordon:
            manifest["spec"] = {"unschedulable": True}
        preconditions = Preconditions(
            uid=node.metadata.uid, resource_version=node.metadata.resource_version
        )
        await self.scheduler.apply(NODES, manifest, force=True, preconditions=preconditions)

    async def grant(self, name: str) -> None:
        """Add an entry in flight to the Rollout, which is created with the first one."""
        uid = self.records[name].node_uid
        entry = {uid: InFlight(node=name, token=1, target=TARGET, since=self.sim.clock.now())}
        status = {"status": {"inFlight": msgspec.to_builtins(entry)}}
        typed = {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}
        with suppress(AlreadyExists):
            await self.scheduler.create(ROLLOUTS, {**typed, "metadata": {"name": POOL}})
        rollout = await self.scheduler.get(ROLLOUTS, POOL)
        await self.scheduler.merge(
            ROLLOUTS, POOL, status, resource_version=rollout.metadata.resource_version,
            subresource="status",
        )  # fmt: skip

    async def lease(self, name: str) -> None:
        await self.grant(name)
        seen = {"nodes": (await self.scheduler.get(NODES, name)).metadata.resource_version}
        await self.apply(
            name, cordon=True, lease=1, token=1, pool=POOL, operation=Operation.UPGRADE,
            target=TARGET, label=LABEL, state="pod-deletion-required", seen=seen,
        )  # fmt: skip

    async def start_driver_pod(self, node: str) -> str:
        """Start a ready driver pod and return its uid."""
        driver, meta = container(DRIVER_CONTAINER), {"labels": {DRIVER_LABEL: LABEL}}
        manifest = objects.pod(f"driver-{node}", node=node, meta=meta, containers=[driver])
        pod = await self.kubelet.create(PODS, manifest, namespace="default")
        state = {"running": {"startedAt": format_time(self.sim.clock.now())}}
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": DRIVER_CONTAINER, "state": state}],
        }
        await self.kubelet.merge(
            PODS, f"driver-{node}", {"status": status}, namespace="default",
            resource_version=pod.metadata.resource_version, subresource="status",
        )  # fmt: skip
        return pod.metadata.uid

    async def finish(self, name: str) -> None:
        await self.apply(name, cordon=True, lease=1, state="pod-restart-required", started=True)
        pod_uid, started = await self.start_driver_pod(name), self.sim.clock.now()
        await self.sim.clock.sleep(60)
        uid = self.records[name].node_uid
        for phase in (EntryPhase.STARTED, EntryPhase.FINISHED):
            result = Result(epoch=1, token=1, op=1, command="validate", outcome=Outcome.DONE)
            self.entries.append(
                Entry(
                    node=name, node_uid=uid, boot_id="boot", component="validator", epoch=1,
                    token=1, op=1, command="validate", phase=phase, time=self.sim.clock.now(),
                    result=result if phase is EntryPhase.FINISHED else None,
                )
            )  # fmt: skip
        evidence = Evidence(
            epoch=1, token=1, op=1, passed=True, label=LABEL, node_uid=uid, boot_id="boot",
            kernel="6.8.0", driver_pod_uid=pod_uid, driver_started=started, at=self.sim.clock.now(),
        )  # fmt: skip
        await self.apply(
            name, cordon=False, state="upgrade-done", operation=None, started=False,
            evidence=evidence,
        )  # fmt: skip

    async def cordoned(self, name: str) -> bool:
        return (await self.person.get(NODES, name)).spec.unschedulable

    def judge(self) -> AuditResult:
        pool = PoolFacts(key=POOL, max_unavailable=1, failure_threshold=1)
        revisions = tuple(self.server.journal.revisions)
        return judge(AuditJournal(revisions=revisions, entries=tuple(self.entries), pools=(pool,)))


def play(main: Callable[[AuditedCluster], Awaitable[None]]) -> list[tuple[str, str]]:
    """Return invariant and message of each violation."""

    async def judged(sim: Sim) -> AuditResult:
        cluster = AuditedCluster(sim)
        await cluster.person.create(
            CUSTOM_RESOURCE_DEFINITIONS, crd_manifests()["rollouts.sluice.dev"]
        )
        for name in ("n1", "n2"):
            await cluster.node(name)
        await main(cluster)
        return cluster.judge()

    result = run(judged, seed=1)
    assert set(result.not_judged) == {"I9", "I11"}
    return [(found.invariant, found.message) for found in result.violations]


CORDON: dict[str, Any] = {"spec": {"unschedulable": True}}


def test_the_journal_of_the_simulated_server_shows_upgrades_beyond_the_budget() -> None:
    async def main(cluster: AuditedCluster) -> None:
        await cluster.edit("n1", CORDON)
        for name in ("n1", "n2"):
            await cluster.lease(name)
            await cluster.finish(name)
            await cluster.edit("n1", {"metadata": {"labels": {"team": name}}})
        assert await cluster.cordoned("n1")
        assert not await cluster.cordoned("n2")

    ((invariant, message),) = play(main)
    assert invariant == "I1"
    assert message.startswith(f"n2 was made unavailable, which makes 2 of pool {POOL}")


@pytest.mark.parametrize("again", [False, True])
def test_a_cordon_set_midway_on_the_simulated_server(again: bool) -> None:
    async def main(cluster: AuditedCluster) -> None:
        await cluster.lease("n1")
        await cluster.edit("n1", {"spec": {"unschedulable": None}})
        if again:
            await cluster.edit("n1", CORDON)
        await cluster.finish("n1")
        assert await cluster.cordoned("n1") is again

    assert play(main) == []


def test_the_journal_of_the_simulated_server_shows_a_foreign_field_that_was_forced() -> None:
    async def main(cluster: AuditedCluster) -> None:
        await cluster.edit("n1", {"metadata": {"labels": {"team/colour": "red"}}})
        node = await cluster.scheduler.get(NODES, "n1")
        preconditions = Preconditions(
            uid=node.metadata.uid, resource_version=node.metadata.resource_version
        )
        manifest = {"metadata": {"name": "n1", "labels": {"team/colour": "blue"}}}
        await cluster.scheduler.apply(NODES, manifest, force=True, preconditions=preconditions)
        with pytest.raises(Conflict):
            await cluster.scheduler.apply(NODES, manifest, force=True, preconditions=preconditions)

    path = 'metadata.labels["team/colour"]'
    message = f"n1: {path}, last written by kubectl, was changed by us from 'red' to 'blue'"
    assert play(main) == [("I4", message)]


def test_the_journal_of_the_simulated_server_shows_evictions_and_recreated_nodes() -> None:
    async def main(cluster: AuditedCluster) -> None:
        pod = await cluster.person.create(PODS, objects.pod("p", node="n1"), namespace="default")
        for _ in range(2):
            await cluster.scheduler.evict("p", namespace="default", uid=pod.metadata.uid)
        await cluster.lease("n1")
        await cluster.person.delete(NODES, "n1", uid=cluster.records["n1"].node_uid)
        await cluster.node("n1")
        await cluster.lease("n1")

    assert play(main) == [("I10", "pod default/p was evicted more than once")]
