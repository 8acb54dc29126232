"""Actions of people on a stage, each as one method."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from libs.contracts.journal import Verb
from libs.contracts.message import encode
from libs.contracts.node import LeaseOwner, NodeLease
from libs.contracts.paths import (
    CORDON,
    DRIVER,
    KEEP_CORDONED,
    LEASE,
    LEASE_CLAIM,
    RECORD,
    REQUEST,
    REQUESTED,
    SAFE_LOAD,
    SKIP,
    STATE,
    TAINTS,
    UID,
)
from libs.contracts.rollout import KIND, Brake, Release, RolloutSpec
from libs.forecast.stage import api, driver_pods, mig, tenant_pods
from libs.forecast.stage.fields import OwnedField
from libs.forecast.stage.from_fleet import create_daemon_sets
from libs.forecast.stage.objects import StageDriverPod, StageNode, Tenant
from libs.forecast.stage.state import ObjectRef, Requester, StageState
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.decision import NodeTaint
from libs.rollout.persons_lease import has_persons_lease
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, Readiness
from libs.testing.stage import faults, specs
from libs.testing.stage.specs import StageNodeSpec
from libs.testing.stage.state import SimulatedState

PERSON = "person"
KUBECTL = "kubectl-edit"
BY_KUBECTL = Requester(Verb.PATCH, PERSON, KUBECTL)


def _id(taint: NodeTaint) -> tuple[str, str]:
    return (taint.key, taint.effect)


class UserActions:
    def __init__(self, state: SimulatedState) -> None:
        self._state = state

    # Edits of a Node.

    def edit(self, node: str, changes: Mapping[str, Any], manager: str = KUBECTL) -> None:
        """Patch a Node by path; None removes."""
        current = self._state.nodes.get(node)
        if current is not None:
            fields = dict(current.fields)
            for path, value in changes.items():
                if value is None:
                    fields.pop(path, None)
                elif path not in fields or fields[path].value != value:
                    fields[path] = OwnedField(value, (manager,))
            if fields != current.fields:
                by = Requester(Verb.PATCH, PERSON, manager)
                api.change_fields(self._state, current, fields, by)
            text = ", ".join(f"{path} = {value!r}" for path, value in changes.items())
            self._state.log(f"{node}: {manager} writes {text}")

    def cordon(self, node: str) -> None:
        """`kubectl cordon`: writes nothing on a cordoned node."""
        self.edit(node, {CORDON: True}, "kubectl-cordon")

    def uncordon(self, node: str) -> None:
        self.edit(node, {CORDON: None}, "kubectl-uncordon")

    def taint(self, node: str, key: str) -> None:
        """`kubectl taint nodes NODE KEY=person:NoSchedule --overwrite`."""
        current = self._state.nodes.get(node)
        if current is not None:
            taint = NodeTaint(key=key, effect="NoSchedule", value=PERSON)
            others = (each for each in current.view.taints if _id(each) != _id(taint))
            self.edit(node, {TAINTS: (*others, taint)}, "kubectl-taint")

    def untaint(self, node: str, key: str) -> None:
        """`kubectl taint nodes NODE KEY-`."""
        current = self._state.nodes.get(node)
        if current is not None:
            kept = tuple(each for each in current.view.taints if each.key != key)
            self.edit(node, {TAINTS: kept or None}, "kubectl-taint")

    def set_state(self, node: str, state: str | None) -> None:
        self.edit(node, {STATE: state})

    def set_driver_label(self, node: str, label: str | None) -> None:
        self.edit(node, {DRIVER: label})

    def set_record(self, node: str, text: str | None) -> None:
        self.edit(node, {RECORD: text})

    def set_lease(self, node: str, text: str | None) -> None:
        self.edit(node, {LEASE: text})

    def take_lease(self, node: str) -> None:
        """Take the lease, as `sluice lease take` does: of a node in flight, claim it."""
        current = self._state.nodes.get(node)
        view = self._state.node_view(node)
        if current is None or view is None or view.claim is not None:
            return
        record = view.current_record
        if has_persons_lease(view):
            return
        taken = NodeLease(
            node_uid=current.view.uid,
            owner=LeaseOwner.HUMAN,
            token=record.token if record is not None else 0,
            since=self._state.now,
            who=PERSON,
            reason="swap a riser",
        )
        path = LEASE if view.lease is None else LEASE_CLAIM
        self.edit(node, {path: encode(taken).decode()})

    def return_lease(self, node: str) -> None:
        """Give a lease or a claim back, as `sluice lease return` does."""
        view = self._state.node_view(node)
        if view is None:
            return
        ended = (LEASE, LEASE_CLAIM) if has_persons_lease(view) else (LEASE_CLAIM,)
        self.edit(node, dict.fromkeys(ended))

    def set_request(self, node: str, what: str) -> None:
        self.edit(node, {REQUEST: what})

    def set_operator_request(self, node: str) -> None:
        self.edit(node, {REQUESTED: "true"})

    def set_safe_load(self, node: str) -> None:
        """Set the annotation by which a driver waits until it may load."""
        self.edit(node, {SAFE_LOAD: "true"}, "nvidia-driver")

    def set_skip(self, node: str, skip: bool) -> None:
        self.edit(node, {SKIP: "true" if skip else None})

    def set_mig_config(self, node: str, config: str) -> None:
        """Set or remove the label that names how its GPUs are divided."""
        if current := self._state.nodes.get(node):
            wanted = mig.wanted_mig(config) if config else None
            self._state.log(f"{node}: the MIG configuration is {config or 'none'}")
            api.node_stored(self._state, current, BY_KUBECTL, mig=wanted)

    def set_keep_cordoned(self, node: str) -> None:
        """Set the label that keeps the node cordoned."""
        self.edit(node, {KEEP_CORDONED: "true"})

    def delete_node(self, node: str) -> None:
        """`kubectl delete node`: the machine does not notice."""
        state, current = self._state, self._state.nodes.pop(node, None)
        if current is None:
            return
        state.log(f"{node}: the Node is deleted")
        state.revision += 1
        ref, by = ObjectRef("Node", node, current.view.uid), Requester(Verb.DELETE, PERSON)
        state.on_request(ref, by, api.OK, state.revision, {})
        state.slots = {key: slot for key, slot in state.slots.items() if key[0] != node}
        state.driver_facts.pop(node, None)
        state.memory.pop(node, None)
        state.touch(node)
        state.node_changed(node, frozenset((UID,)))

    def register(self, node: str, pool: str) -> None:
        """Let the kubelet of a machine without a Node create one."""
        machine = self._state.machines[node]
        if node not in self._state.nodes and machine.up:
            self._state.log(f"{node}: the kubelet creates a new Node")
            created = NodeView(
                name=node,
                uid=self._state.new_uid("node"),
                revision="",
                created=self._state.now,
                boot_id=machine.boot_id,
                kernel=machine.kernel,
                pool=pool,
                variant=machine.variant,
                gpus=8,
            )
            specs.create_node(self._state, StageNode(view=created))
            faults.bind_to_node(self._state, machine)

    def add_node(self, spec: StageNodeSpec) -> None:
        self._state.log(f"{spec.name}: joins the cluster")
        specs.add_node(self._state, spec)

    def move_to_pool(self, node: str, pool: str) -> None:
        current = self._state.nodes.get(node)
        if current is not None and current.view.pool != pool:
            self._state.log(f"{node}: is in {pool or 'no pool'}")
            current.show(pool=pool)
            self._state.node_changed(node, frozenset())
            api.node_stored(self._state, current, BY_KUBECTL)

    def exclude(self, node: str, excluded: bool) -> None:
        """Set `nvidia.com/gpu.deploy.driver=false`."""
        current = self._state.nodes.get(node)
        if current is not None and current.view.excluded != excluded:
            self._state.log(
                f"{node}: {'excluded from' if excluded else 'included in'} driver management"
            )
            api.node_stored(self._state, current, BY_KUBECTL, excluded=excluded)

    # Pods.

    def delete_driver_pod(self, node: str, *, force: bool = False) -> None:
        """`kubectl delete pod`, optionally with --force."""
        machine = self._state.machines[node]
        for pod in self._driver_pods(node):
            self._state.log(f"{node}: a person deletes {pod.uid}{' by force' if force else ''}")
            if force:
                faults.force_delete(self._state, machine, pod, user=PERSON)
            elif not pod.deleting:
                driver_pods.delete(self._state, machine, pod, user=PERSON)

    def crash_driver(self, node: str) -> None:
        machine = self._state.machines[node]
        for pod in self._driver_pods(node):
            if pod.on_machine and pod.status.started is not None:
                self._state.log(f"{node}: the container of {pod.uid} ends")
                run = driver_pods.PodRun(node, machine.boot, pod.uid, pod.run)
                driver_pods.pod_is_due(self._state, driver_pods.driver_crashed, run)

    def add_tenant(self, node: str, tenant: Tenant) -> None:
        machine = self._state.machines[node]
        machine.tenants = (*machine.tenants, tenant)
        self._state.log(f"{node}: {tenant.name} runs on it")
        tenant_pods.start_tenant_pod(
            self._state, machine, len(machine.tenants) - 1, self._state.new_uid("pod")
        )

    def end_tenants(self, node: str) -> None:
        """End all workloads for good."""
        machine = self._state.machines[node]
        for tenant_pod in list(machine.tenant_pods.values()):
            if tenant_pod.tenant.exemption is not EvictionExemption.OPERAND:
                tenant_pods.remove(self._state, machine, tenant_pod)
        kept = [each for each in machine.tenants if each.exemption is EvictionExemption.OPERAND]
        machine.tenants = tuple(kept)
        self._state.log(f"{node}: its workloads are ended")

    def set_host_processes(self, node: str, number: int) -> None:
        machine = self._state.machines[node]
        machine.host_processes = number
        self._state.log(f"{node}: {number} processes of the host hold the devices")
        self._state.machine_changed(machine)

    def install_driver(self, node: str, install_digest: str) -> None:
        """Install a driver as the owner of the machine."""
        self._state.log(f"{node}: its owner installs {install_digest}")
        faults.preinstall_driver(self._state, self._state.machines[node], install_digest)

    def clear_obstacles(self, node: str) -> None:
        self._state.machines[node].obstacles = ()
        self._state.log(f"{node}: its obstacles are removed")

    def _driver_pods(self, node: str) -> list[StageDriverPod]:
        return [pod for pod in self._state.machines[node].drivers.values() if pod.in_api]

    # Pools.

    def set_brake(self, pool: str, brake: Brake) -> None:
        self._edit_spec(pool, brake=brake)

    def set_release(self, pool: str, target: str, failures: int) -> None:
        self._edit_spec(pool, release=Release(target=target, failures=failures))

    def _edit_spec(self, key: str, **changes: Any) -> None:
        rollout = self._state.pools[key].rollout
        if rollout is None or replace(rollout.spec, **changes) == rollout.spec:
            return
        spec: RolloutSpec = replace(rollout.spec, **changes)
        edited = replace(rollout, spec=spec, generation=rollout.generation + 1)
        self._state.log(f"{key}: the Rollout's spec is {spec}")
        api.store_rollout(self._state, key, edited, Requester(Verb.UPDATE, PERSON, KUBECTL))

    def delete_rollout(self, pool: str) -> None:
        """Delete the Rollout, with its finalizer if it has one."""
        state, rollout = self._state, self._state.pools[pool].rollout
        if rollout is not None:
            state.log(f"{pool}: the Rollout is gone")
            state.revision += 1
            state.change_pool(pool, rollout=None)
            ref, by = ObjectRef(KIND, pool, rollout.uid), Requester(Verb.DELETE, PERSON)
            state.on_request(ref, by, api.OK, state.revision, {})

    def set_target(self, pool: str, target: str, builds: Mapping[str, Build] | None = None) -> None:
        """Edit the target of the policy; the DaemonSets of given builds settle later."""
        all_builds = self._state.pools[pool].builds
        self._state.log(f"{pool}: the target is {target}")
        if builds is not None:
            late = {
                variant: replace(build, readiness=Readiness.UNSETTLED, detail="it was changed")
                for variant, build in builds.items()
            }
            all_builds = {**all_builds, target: late}
            self._state.call_after(1.0, settle_daemon_sets, pool, target)
        self._state.change_pool(pool, target=target, builds=all_builds)

    def edit_policy(
        self,
        pool: str,
        *,
        upgrade: UpgradePolicy | None = None,
        strategy: StrategySpec | None = None,
        gone: bool | None = None,
    ) -> None:
        """Edit or delete the policy."""
        edits = {"upgrade": upgrade, "strategy": strategy, "gone": gone}
        self._state.change_pool(
            pool, **{name: edit for name, edit in edits.items() if edit is not None}
        )
        is_gone = self._state.pools[pool].gone
        self._state.log(f"{pool}: the policy is {'gone' if is_gone else 'edited'}")
        self._state.node_changed(pool, frozenset())
        self._state.touch_all(_members(self._state, pool))


def settle_daemon_sets(state: StageState, pool: str, target: str) -> None:
    builds = state.pools[pool].builds
    settled = {
        variant: replace(build, readiness=Readiness.SETTLED, detail="")
        for variant, build in builds.get(target, {}).items()
    }
    state.change_pool(pool, builds={**builds, target: settled})
    create_daemon_sets(state, pool)
    state.touch_all(_members(state, pool))
    for name in state.machines:
        state.call_after(state.latencies.daemon_set, driver_pods.sync_drivers, name)


def _members(state: StageState, pool: str) -> list[str]:
    return [name for name, node in state.nodes.items() if node.view.pool == pool]
