"""One script of a small cluster, run on both servers to compare the results.

It has three machines, a driver that moves between two DaemonSets, a workload with a budget, edits
by a person, the status of a custom resource, a lease, and deletions. Each step waits for its
consequences, so both servers get the same requests.
"""

from typing import Any

from libs.kube.client import BlockedByBudget, Evicted, Preconditions
from libs.kube.errors import Conflict, Gone, KubeError, NotFound
from libs.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    EVENTS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    Resource,
)
from libs.kube.views import Node, Object, Pod
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from tests.builders.objects import budget, config_map, daemon_set, replica_set
from tests.component.kube.raw_requests import cordon, get_json, label, patch, send_request
from tests.component.kube.sandbox import ALICE, Sandbox, settled_node
from tests.component.kube.widgets import WIDGETS, definition, widget
from tests.support import eventually

KEY = "sluice.dev/driver"
STATE = "nvidia.com/gpu-driver-upgrade-state"
LEASE = "sluice.dev/lease"
WORK = "life.example/work"
REPLICA_SETS = Resource(group="apps", plural="replicasets", kind="ReplicaSet", view=Object)


class ClusterScript:
    """The steps of the script, from the first machine to the last deletion."""

    def __init__(self, sandbox: Sandbox, fleet: KubeletFleet) -> None:
        self._sandbox = sandbox
        self._fleet = fleet
        self._namespace = sandbox.namespace
        self.ours = sandbox.kube()
        self.driver = sandbox.kube(manager="sluice-driver")
        self.alice = sandbox.kube(user=ALICE, manager="kubectl-label")

    async def run(self) -> None:
        """Run all steps."""
        a, b, c = [await self._sandbox.machine(self._fleet, name) for name in "abc"]
        for node in (a, b, c):
            await label(self.alice, node, {KEY: "old"})
        await self._create_drivers()
        await self._create_workload(a)
        await self._replace_status("Proving")
        await self._cordon(a)
        await self._evict(a, b)
        await self._change_driver(a)
        await self._replace_status("Proven")
        await self._release(a)
        await self._edit(b)
        await self._delete_node(c)
        await self._pass_lease_and_delete()

    # Steps

    async def _create_drivers(self) -> None:
        for name in ("old", "new"):
            wanted = daemon_set(name, selector={KEY: name}, grace=1)
            wanted["spec"]["template"]["spec"]["automountServiceAccountToken"] = False
            await self.driver.apply(DAEMON_SETS, wanted, force=False)
        await self._wait_until_ready("old", 3)

    async def _create_workload(self, node: str) -> None:
        """Create two pods that only this node can run, with a budget that allows no disruption."""
        await label(self.alice, node, {WORK: "yes"})
        pods: Any = {"nodeSelector": {WORK: "yes"}, "automountServiceAccountToken": False}
        wanted = replica_set("job", replicas=2, grace=1, **pods)
        await self.alice.create(REPLICA_SETS, wanted)
        await self._wait_until_ready("job", 2)
        await self.alice.create(POD_DISRUPTION_BUDGETS, budget("job", "job", minAvailable=2))
        await self._wait_until_allowed(0)

    async def _cordon(self, node: str) -> None:
        """Cordon the node; a second write at the same revision conflicts with the new taint."""
        seen = await settled_node(self.ours, node)
        wanted = self._node_manifest(node, state="wait-for-jobs-required", cordoned=True)
        await self._write(seen, wanted)
        await settled_node(self.ours, node)
        await self._assert_refused(self._write(seen, wanted))

    async def _evict(self, source: str, target: str) -> None:
        """Evict both pods: first the budget blocks it, then they move to the target one by one."""
        first, second = await self._wait_until_ready("job", 2)
        assert isinstance(await self._evict_pod(first), BlockedByBudget)
        await patch(self.alice, POD_DISRUPTION_BUDGETS, "job", {"spec": {"minAvailable": 1}})
        await label(self.alice, target, {WORK: "yes"})
        for pod in (first, second):
            await self._wait_until_allowed(1)
            assert await self._evict_pod(pod) == Evicted()
            await self._wait_until_gone(PODS, pod.metadata.name)
            await self._wait_until_ready("job", 2)
        await self._wait_until_allowed(1)
        moved = await self._wait_until_ready("job", 2)
        assert {pod.spec.node_name for pod in moved} == {target} != {source}

    async def _change_driver(self, node: str) -> None:
        """Change the driver label; the node's driver pod changes with it."""
        wanted = self._node_manifest(
            node, state="pod-restart-required", cordoned=True, driver="new"
        )
        await self._write(await settled_node(self.ours, node), wanted)
        await self._wait_until_ready("new", 1)
        await self._wait_until_ready("old", 2)

    async def _release(self, node: str) -> None:
        """Drop the cordon from the apply, which ends it; a repeated apply writes nothing."""
        wanted = self._node_manifest(node, state="upgrade-done", driver="new")
        done = await self._write(await settled_node(self.ours, node), wanted)
        assert done.spec.unschedulable is False
        quiet = await settled_node(self.ours, node)
        assert await self._write(quiet, wanted) == quiet

    async def _edit(self, node: str) -> None:
        """Check that a person owns his edits until an apply with force."""
        await self._write(
            await settled_node(self.ours, node), self._node_manifest(node, state="upgrade-required")
        )
        await label(self.alice, node, {STATE: "mine", "life.example/note": "hands-off"})
        await cordon(self.alice, node)
        seen = await settled_node(self.ours, node)
        manifest = self._node_manifest(node, state="upgrade-required", cordoned=True)
        await self._assert_refused(self._write(seen, manifest, force=False))
        await self._write(seen, manifest)
        await self._write(
            await settled_node(self.ours, node), self._node_manifest(node, state="upgrade-required")
        )
        assert (await settled_node(self.ours, node)).spec.unschedulable is True

    async def _delete_node(self, node: str) -> None:
        """Remove the driver, then the node; a write with the uid of the deleted node is refused."""
        await label(self.alice, node, {KEY: None})
        await self._wait_until_ready("old", 1)
        seen = await settled_node(self.ours, node)
        self._fleet[node].power_off()
        await self.alice.delete(NODES, node, uid=seen.metadata.uid)
        await self._assert_refused(
            self._write(seen, self._node_manifest(node, state="upgrade-required"))
        )

    async def _replace_status(self, phase: str) -> None:
        """Replace the status; a second replacement of the old revision is refused."""
        try:
            read = await get_json(self.ours, WIDGETS, "pool")
        except NotFound:
            await self._sandbox.install(definition())
            await self.ours.create(WIDGETS, widget("pool", mode="Pause"))
            read = await get_json(self.ours, WIDGETS, "pool")
        wanted = read | {"status": {"phase": phase, "whole": {phase: {"token": 1}}}}
        await self._put_status(wanted)
        await self._assert_refused(self._put_status(wanted | {"status": {"phase": "Lost"}}))

    async def _pass_lease_and_delete(self) -> None:
        """Pass a lease on, write an event, and delete an object with a finalizer."""
        lease = await self.ours.create(
            LEASES, {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "one"}}
        )
        await self.ours.replace(
            LEASES,
            {
                "metadata": {
                    "name": "leader",
                    "resourceVersion": lease.metadata.resource_version,
                },
                "spec": {"holderIdentity": "two", "leaseTransitions": 1},
            },
        )
        about = {"kind": "ConfigMap", "name": "held", "namespace": self._namespace}
        await self.ours.create(
            EVENTS, {"metadata": {"name": "held.1"}, "involvedObject": about, "reason": "Held"}
        )
        held = config_map("held", {"k": "1"}, finalizers=["sluice.dev/held"])
        created = await self.ours.create(CONFIG_MAPS, held)
        await self.alice.delete(CONFIG_MAPS, "held", uid=created.metadata.uid)
        await patch(self.ours, CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
        await self._wait_until_gone(CONFIG_MAPS, "held")
        await send_request(
            self.alice,
            "DELETE",
            DAEMON_SETS.path(namespace=self._namespace, name="old"),
            propagationPolicy="Background",
        )
        await self._wait_until_ready("old", 0)

    # Requests and waits

    def _node_manifest(
        self, node: str, *, state: str, cordoned: bool = False, driver: str = ""
    ) -> dict[str, Any]:
        labels = {STATE: state} | ({KEY: driver} if driver else {})
        annotations = {LEASE: "upgrade/1"} if cordoned else {}
        return {
            "metadata": {"name": node, "labels": labels, "annotations": annotations},
            "spec": {"unschedulable": True} if cordoned else {},
        }

    async def _write(self, seen: Node, wanted: dict[str, Any], *, force: bool = True) -> Node:
        fence = Preconditions(
            uid=seen.metadata.uid, resource_version=seen.metadata.resource_version
        )
        return await self.ours.apply(NODES, wanted, force=force, preconditions=fence)

    async def _put_status(self, wanted: dict[str, Any]) -> object:
        return await self.ours.replace(WIDGETS, wanted, subresource="status")

    async def _assert_refused(self, write: Any) -> None:
        try:
            await write
        except (Conflict, NotFound, Gone):
            return
        except KubeError as error:
            raise AssertionError(f"expected Conflict, NotFound or Gone, got {error!r}") from error
        raise AssertionError("the write succeeded; expected a refusal")

    async def _evict_pod(self, pod: Pod) -> object:
        return await self.ours.evict(pod.metadata.name, uid=pod.metadata.uid)

    async def _wait_until_ready(self, app: str, count: int) -> list[Pod]:
        """Wait until the app has exactly this many pods, all ready; return them sorted by name."""
        found: list[Pod] = []

        async def all_ready() -> bool:
            nonlocal found
            page = await self.ours.list_page(PODS, labels=f"app={app}")
            found = list(page.items)
            return len(found) == count and all(
                not pod.metadata.deletion_timestamp
                and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
                for pod in found
            )

        await eventually(all_ready)
        return found

    async def _wait_until_allowed(self, count: int) -> None:
        async def agrees() -> bool:
            now = await get_json(self.ours, POD_DISRUPTION_BUDGETS, "job")
            status = now.get("status", {})
            return (
                status.get("observedGeneration") == now["metadata"]["generation"]
                and status.get("disruptionsAllowed") == count
                and status.get("currentHealthy") == 2
            )

        await eventually(agrees)

    async def _wait_until_gone(self, resource: Resource[Any], name: str) -> None:
        async def gone() -> bool:
            try:
                await self.ours.get(resource, name)
            except NotFound:
                return True
            return False

        await eventually(gone)
