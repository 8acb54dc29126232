"""The life of a small cluster: one script for both servers, and what remains of it to compare.

Three machines, a driver that moves from one DaemonSet to another, a workload with a budget, what a
person does meanwhile, a record in a custom resource, a lease, and things that go. Each step waits
until what follows from it is there, so both servers are asked the same.
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
from tests.component.kube.builders import budget, config_map, daemon_set
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
    """One cluster's, from the first machine to the end."""

    def __init__(self, sandbox: Sandbox, fleet: KubeletFleet) -> None:
        self._place = sandbox
        self._fleet = fleet
        self._namespace = sandbox.namespace
        self.ours = sandbox.kube()
        self.driver = sandbox.kube(manager="sluice-driver")
        self.alice = sandbox.kube(user=ALICE, manager="kubectl-label")

    async def run(self) -> None:
        """All of it."""
        a, b, c = [await self._place.machine(self._fleet, name) for name in "abc"]
        for node in (a, b, c):
            await label(self.alice, node, {KEY: "old"})
        await self._drivers()
        await self._workload(a)
        await self._record("Proving")
        await self._cordon(a)
        await self._evict(a, b)
        await self._swap(a)
        await self._record("Proven")
        await self._release(a)
        await self._persons(b)
        await self._leave(c)
        await self._small()

    # The steps.

    async def _drivers(self) -> None:
        for name in ("old", "new"):
            wanted = daemon_set(name, selector={KEY: name}, grace=1)
            wanted["spec"]["template"]["spec"]["automountServiceAccountToken"] = False
            await self.driver.apply(DAEMON_SETS, wanted, force=False, namespace=self._namespace)
        await self._ready("old", 3)

    async def _workload(self, node: str) -> None:
        """Two pods that can run on that node alone, and may not both be missing."""
        await label(self.alice, node, {WORK: "yes"})
        pods = {
            "nodeSelector": {WORK: "yes"},
            "containers": [{"name": "main", "image": "none"}],
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
        }
        wanted = {
            "metadata": {"name": "job"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "job"}},
                "template": {"metadata": {"labels": {"app": "job"}}, "spec": pods},
            },
        }
        await self.alice.create(REPLICA_SETS, wanted, namespace=self._namespace)
        await self._ready("job", 2)
        await self.alice.create(
            POD_DISRUPTION_BUDGETS,
            budget("job", {"app": "job"}, minAvailable=2),
            namespace=self._namespace,
        )
        await self._allowed(0)

    async def _cordon(self, node: str) -> None:
        """One write for all; a second on the same revision is too late, for the taint came."""
        seen = await settled_node(self.ours, node)
        wanted = self._wanted(node, state="wait-for-jobs-required", cordoned=True)
        await self._write(seen, wanted)
        await settled_node(self.ours, node)
        await self._refused(self._write(seen, wanted))

    async def _evict(self, source: str, target: str) -> None:
        """Withheld at first; then one after the other, and the other node takes them."""
        first, second = await self._ready("job", 2)
        assert isinstance(await self._out(first), BlockedByBudget)
        await patch(
            self.alice,
            POD_DISRUPTION_BUDGETS,
            "job",
            {"spec": {"minAvailable": 1}},
            namespace=self._namespace,
        )
        await label(self.alice, target, {WORK: "yes"})
        for pod in (first, second):
            await self._allowed(1)
            assert await self._out(pod) == Evicted()
            await self._gone(PODS, pod.metadata.name)
            await self._ready("job", 2)
        await self._allowed(1)
        moved = await self._ready("job", 2)
        assert {pod.spec.node_name for pod in moved} == {target} != {source}

    async def _swap(self, node: str) -> None:
        """The label moves, and with it the driver."""
        wanted = self._wanted(node, state="pod-restart-required", cordoned=True, driver="new")
        await self._write(await settled_node(self.ours, node), wanted)
        await self._ready("new", 1)
        await self._ready("old", 2)

    async def _release(self, node: str) -> None:
        """The cordon goes with what we no longer say; saying the same again writes nothing."""
        wanted = self._wanted(node, state="upgrade-done", driver="new")
        done = await self._write(await settled_node(self.ours, node), wanted)
        assert done.spec.unschedulable is False
        quiet = await settled_node(self.ours, node)
        assert await self._write(quiet, wanted) == quiet

    async def _persons(self, node: str) -> None:
        """What a person says of a node stays his until we take it by force."""
        await self._write(
            await settled_node(self.ours, node), self._wanted(node, state="upgrade-required")
        )
        await label(self.alice, node, {STATE: "mine", "life.example/note": "hands-off"})
        await cordon(self.alice, node)
        seen = await settled_node(self.ours, node)
        again = self._wanted(node, state="upgrade-required", cordoned=True)
        await self._refused(self._write(seen, again, force=False))
        await self._write(seen, again)
        await self._write(
            await settled_node(self.ours, node), self._wanted(node, state="upgrade-required")
        )
        assert (await settled_node(self.ours, node)).spec.unschedulable is True

    async def _leave(self, node: str) -> None:
        """The driver leaves first; a node of that name with another uid is never touched."""
        await label(self.alice, node, {KEY: None})
        await self._ready("old", 1)
        seen = await settled_node(self.ours, node)
        self._fleet[node].power_off()
        await self.alice.delete(NODES, node, uid=seen.metadata.uid)
        await self._refused(self._write(seen, self._wanted(node, state="upgrade-required")))

    async def _record(self, phase: str) -> None:
        """A PUT of the status; the same again on the old revision is refused."""
        try:
            read = await get_json(self.ours, WIDGETS, "pool", namespace=self._namespace)
        except NotFound:
            await self._place.install(definition())
            await self.ours.create(WIDGETS, widget("pool", mode="Pause"), namespace=self._namespace)
            read = await get_json(self.ours, WIDGETS, "pool", namespace=self._namespace)
        wanted = read | {"status": {"phase": phase, "whole": {phase: {"token": 1}}}}
        await self._put(wanted)
        await self._refused(self._put(wanted | {"status": {"phase": "Lost"}}))

    async def _small(self) -> None:
        """A lease that changes hands, an event, and what a finalizer holds."""
        lease = await self.ours.create(
            LEASES,
            {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "one"}},
            namespace=self._namespace,
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
            namespace=self._namespace,
        )
        about = {"kind": "ConfigMap", "name": "held", "namespace": self._namespace}
        await self.ours.create(
            EVENTS,
            {"metadata": {"name": "held.1"}, "involvedObject": about, "reason": "Held"},
            namespace=self._namespace,
        )
        held = config_map("held", {"k": "1"}, finalizers=["sluice.dev/held"])
        made = await self.ours.create(CONFIG_MAPS, held, namespace=self._namespace)
        await self.alice.delete(
            CONFIG_MAPS, "held", uid=made.metadata.uid, namespace=self._namespace
        )
        await patch(
            self.ours,
            CONFIG_MAPS,
            "held",
            {"metadata": {"finalizers": None}},
            namespace=self._namespace,
        )
        await self._gone(CONFIG_MAPS, "held")
        await send_request(
            self.alice,
            "DELETE",
            DAEMON_SETS.path(namespace=self._namespace, name="old"),
            propagationPolicy="Background",
        )
        await self._ready("old", 0)

    # What the steps are made of.

    def _wanted(
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

    async def _put(self, wanted: dict[str, Any]) -> object:
        return await self.ours.replace(
            WIDGETS, wanted, namespace=self._namespace, subresource="status"
        )

    async def _refused(self, write: Any) -> None:
        try:
            await write
        except (Conflict, NotFound, Gone):
            return
        except KubeError as error:
            raise AssertionError(f"refused, but otherwise: {error!r}") from error
        raise AssertionError("this was to be refused")

    async def _out(self, pod: Pod) -> object:
        return await self.ours.evict(
            pod.metadata.name, namespace=self._namespace, uid=pod.metadata.uid
        )

    async def _ready(self, app: str, count: int) -> list[Pod]:
        """So many pods, all ready and none that is going; in order of their names."""
        found: list[Pod] = []

        async def there() -> bool:
            nonlocal found
            page = await self.ours.list_page(PODS, namespace=self._namespace, labels=f"app={app}")
            found = list(page.items)
            return len(found) == count and all(
                not pod.metadata.deletion_timestamp
                and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
                for pod in found
            )

        await eventually(there)
        return found

    async def _allowed(self, count: int) -> None:
        async def agrees() -> bool:
            now = await get_json(
                self.ours, POD_DISRUPTION_BUDGETS, "job", namespace=self._namespace
            )
            status = now.get("status", {})
            return (
                status.get("observedGeneration") == now["metadata"]["generation"]
                and status.get("disruptionsAllowed") == count
                and status.get("currentHealthy") == 2
            )

        await eventually(agrees)

    async def _gone(self, resource: Resource[Any], name: str) -> None:
        async def gone() -> bool:
            try:
                await self.ours.get(resource, name, namespace=self._namespace)
            except NotFound:
                return True
            return False

        await eventually(gone)
