"""Assemble pools from all policies: the nodes of each policy, and a verdict on each policy.

Pure and deterministic: the same objects and nodes give the same pools in the same order. While
policies conflict, all nodes keep their owners.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from libs.policy.entries import PolicyEntry, about_name, uncovered_nodes
from libs.policy.findings import (
    Acceptance,
    Finding,
    Severity,
    quote_value,
)
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.kinds.rollout import ROLLOUT
from libs.policy.kinds.strategy import RolloutStrategy, StrategySpec
from libs.policy.kinds.upgrade_policy import AutoUpgradePolicy, UpgradePolicy
from libs.policy.manager_env import upgrades_by_hand
from libs.policy.manifests import ParsedPolicy, Policy
from libs.policy.owners import (
    NodeLabels,
    assign_owners,
    current_owners,
    is_for_containers,
    is_pre_installed,
)
from libs.policy.pool import ClusterWidePolicy, Pool, Pools, divide_pool, pool_key
from libs.policy.validation import PRESENT_LABEL
from libs.policy.wanted import (
    WantedDriver,
    driver_of_cluster,
    driver_of_pool,
    host_driver,
    operands_of,
)

PolicyT = TypeVar("PolicyT", bound=Policy)

_SELECTION: Final = ("spec.nodeSelector", "spec.nodeAffinity", "spec.default")
"""Prefixes of the fields that select a driver's nodes."""

_warning: Final = partial(Finding, severity=Severity.WARNING)


def assemble_pools(
    policies: Iterable[ParsedPolicy],
    nodes: Iterable[NodeLabels],
    *,
    gpu_clusters: Sequence[str] = (),
) -> Pools:
    """Assemble the pools of all policies.

    `gpu_clusters` are the names of GPUCluster objects. They belong to a GPU Operator, which
    conflicts with a cluster-wide policy.
    """
    return _Assembly(policies, nodes, gpu_clusters).assemble()


class _Assembly:
    def __init__(
        self,
        policies: Iterable[ParsedPolicy],
        nodes: Iterable[NodeLabels],
        gpu_clusters: Sequence[str],
    ) -> None:
        self._entries = [
            PolicyEntry(parsed.kind, parsed.policy, parsed.findings)
            for parsed in policies
            if parsed.policy and parsed.kind != ROLLOUT.name
        ]
        # The oldest policy comes first, because it takes precedence.
        self._entries.sort(
            key=lambda entry: (entry.metadata.creation_timestamp, entry.metadata.name, entry.kind)
        )
        self._drivers = self._of_type(NvidiaDriver)
        self._gpu_nodes = sorted(
            (node for node in nodes if node.labels.get(PRESENT_LABEL) == "true"),
            key=lambda node: node.name,
        )
        self._nodes = self._gpu_nodes
        self._gpu_clusters = sorted(gpu_clusters)
        self._pools: dict[str, Pool] = {}
        self._owner_labels: Mapping[str, str] | None = {}
        self._undecided = False

    def assemble(self) -> Pools:
        for entry in self._entries:
            if deleted_at := entry.metadata.deletion_timestamp:
                problem = "is set: the object is being deleted and no longer takes effect"
                field = "metadata.deletionTimestamp"
                found = _warning(field=field, value=deleted_at, problem=problem)
                entry.reject(Acceptance.DELETING, found)
        candidates = self._of_type(ClusterPolicy, GpuClusterPolicy)
        for entry, _ in candidates[1:]:
            oldest = f'{candidates[0][0].kind} "{candidates[0][0].metadata.name}"'
            problem = (
                f"is ignored: {oldest} is older, and only one cluster-wide policy takes effect"
            )
            found = about_name(entry, problem, f"delete this one, or {oldest}")
            entry.reject(Acceptance.IGNORED, found)
        if candidates:
            self._with_cluster_policy(*candidates[0])
        else:
            self._without_cluster_policy()
        self._strategies()
        return self._result(candidates[0][1] if candidates else None)

    def _of_type(self, *structs: type[PolicyT]) -> list[tuple[PolicyEntry, PolicyT]]:
        """Return the live policies of these types, the oldest first."""
        return [
            (entry, entry.policy)
            for entry in self._entries
            if isinstance(entry.policy, structs) and not entry.metadata.deletion_timestamp
        ]

    def _without_cluster_policy(self) -> None:
        """Build pools without a cluster-wide policy.

        That policy may have been deleted by mistake or may still be created, so no node changes
        its owner, and no driver changes because default paths apply.
        """
        problem = "does not take effect: no ClusterPolicy enables NVIDIADrivers"
        remedy = "create one with spec.driver.useNvidiaDriverCRD true, or delete this object"
        for entry, _ in self._drivers:
            if not self._gpu_clusters:
                entry.findings.append(about_name(entry, problem, remedy, error=True))
        self._driver_pools(None, (), settled=bool(self._gpu_clusters))

    def _with_cluster_policy(self, entry: PolicyEntry, cluster: ClusterWidePolicy) -> None:
        """Build the pools of the cluster-wide policy."""
        conflicts = self._gpu_cluster_conflicts(entry)
        self._owner_labels = None if conflicts else {}
        if isinstance(cluster, GpuClusterPolicy):
            policy = f'GPUClusterPolicy "{entry.metadata.name}"'
            problem = f"is not used: {policy} determines the driver"
            self._disable_drivers(problem, f"delete this one, or {policy}")
            driver, upgrade = host_driver(cluster), AutoUpgradePolicy()
        else:
            self._nodes = [node for node in self._nodes if is_for_containers(node, cluster)]
            if cluster.spec.driver.use_nvidia_driver_crd:
                paths = [
                    found for found in entry.errors if found.field.startswith("spec.hostPaths")
                ]
                # Without any NVIDIADriver it is not known yet which driver the nodes should have.
                settled = bool(self._drivers) and not conflicts
                self._driver_pools(cluster, (*conflicts, *paths), settled=settled)
                self._report_uncovered_nodes(entry)
                return
            remedy = "set spec.driver.useNvidiaDriverCRD of the ClusterPolicy to true, or delete it"
            quoted = "useNvidiaDriverCRD is not enabled in ClusterPolicy"
            self._disable_drivers("is not used", remedy, quoted)
            driver = driver_of_cluster(cluster)
            upgrade = upgrades_by_hand(
                cluster.spec.driver.upgrade_policy, cluster.spec.driver.manager.env
            )
        nodes = [node.name for node in self._nodes]
        self._add_pool(entry, driver, cluster, upgrade=upgrade, nodes=nodes)

    def _disable_drivers(self, problem: str, remedy: str, quoted: str = "") -> None:
        for entry, _ in self._drivers:
            entry.reject(Acceptance.DISABLED, about_name(entry, problem, remedy, quoted))

    def _gpu_cluster_conflicts(self, entry: PolicyEntry) -> tuple[Finding, ...]:
        """Report GPUCluster objects: their GPU Operator would manage the same nodes."""
        quoted = 'conflicting GPUCluster resource "{}" detected; {} and GPUCluster cannot co-exist'
        problem, remedy = "does not take effect", "delete one of the two"
        found = tuple(
            about_name(entry, problem, remedy, quoted.format(name, entry.kind), error=True)
            for name in self._gpu_clusters
        )
        if found:
            entry.reject(Acceptance.CONFLICTING, *found)
        return found

    def _driver_pools(
        self, cluster: ClusterPolicy | None, held: tuple[Finding, ...], *, settled: bool
    ) -> None:
        """Build a pool for each NVIDIADriver, with the nodes that it selects.

        Unless `settled`, nodes keep their current owners.
        """
        live = [driver for _, driver in self._drivers]
        selection_errors = {
            entry.metadata.name: errors
            for entry, _ in self._drivers
            if (errors := [found for found in entry.errors if found.field.startswith(_SELECTION)])
        }
        ownership = assign_owners(live, self._nodes, unfit=selection_errors)
        settled = settled and not ownership.conflicts
        owners = ownership.owners if settled else current_owners(live, self._nodes)
        self._owner_labels = owners if settled else None
        self._undecided = not settled
        nodes: dict[str, list[str]] = {driver.metadata.name: [] for driver in live}
        for node, owner in owners.items():
            nodes[owner].append(node)
        for entry, driver in self._drivers:
            name = entry.metadata.name
            if name in ownership.conflicts:
                entry.reject(Acceptance.CONFLICTING, *ownership.conflicts[name])
            elif ownership.conflicts:
                others = " ".join(ownership.conflicts)
                problem = f"keeps its current nodes: NVIDIADrivers [{others}] conflict"
                remedy = "resolve their conflict; new nodes then get their driver"
                entry.findings.append(about_name(entry, problem, remedy))
            wanted = driver_of_pool(driver, cluster)
            upgrade = upgrades_by_hand(driver.spec.upgrade_policy, driver.spec.manager.env)
            self._add_pool(entry, wanted, cluster, upgrade=upgrade, nodes=nodes[name], held=held)

    def _add_pool(
        self,
        entry: PolicyEntry,
        driver: WantedDriver,
        cluster: ClusterWidePolicy | None,
        *,
        upgrade: UpgradePolicy,
        nodes: Iterable[str],
        held: Iterable[Finding] = (),
    ) -> None:
        """Add the pool of a policy; errors of the policy hold the pool too."""
        key = pool_key(entry.kind, entry.metadata.name)
        self._pools[key] = Pool(
            key=key,
            kind=entry.kind,
            name=entry.metadata.name,
            uid=entry.metadata.uid,
            driver=driver,
            operands=operands_of(cluster),
            upgrade=upgrade,
            strategy=StrategySpec(pool=key),
            nodes=tuple(nodes),
            held=(*held, *entry.errors),
        )

    def _report_uncovered_nodes(self, entry: PolicyEntry) -> None:
        """Warn on the cluster-wide policy about nodes that no driver selects."""
        owned = {node for pool in self._pools.values() for node in pool.nodes}
        uncovered = [node.name for node in self._nodes if node.name not in owned]
        if not uncovered or (self._drivers and self._undecided):
            return
        entry.findings.append(uncovered_nodes(uncovered))

    def _strategies(self) -> None:
        """Apply the oldest strategy that names a pool; its errors hold the pool."""
        first: dict[str, str] = {}
        for entry, strategy in self._of_type(RolloutStrategy):
            key, name = strategy.spec.pool, entry.metadata.name
            pool = self._pools.get(key)
            if pool is None:
                known = ", ".join(sorted(self._pools)) or "there are none"
                problem, remedy = "is not the key of a pool", f"use one of these: {known}"
            elif key in first:
                problem = f'names a pool to which the older RolloutStrategy "{first[key]}" applies'
                remedy = f'delete this one, or "{first[key]}"'
            else:
                first[key] = name
                suffix = f' of RolloutStrategy "{name}"'
                held = [
                    msgspec.structs.replace(found, field=found.field + suffix)
                    for found in entry.errors
                ]
                self._pools[key] = msgspec.structs.replace(
                    pool, strategy=strategy.spec, held=(*pool.held, *held)
                )
                continue
            found = _warning(
                field="spec.pool", value=quote_value(key), problem=problem, remedy=remedy
            )
            entry.reject(Acceptance.IGNORED, found)

    def _result(self, cluster: ClusterWidePolicy | None) -> Pools:
        pre_installed = {node.name for node in self._nodes if is_pre_installed(node.labels)}
        divided = [
            part for pool in self._pools.values() for part in divide_pool(pool, pre_installed)
        ]
        pools = tuple(sorted(divided, key=lambda pool: pool.key))
        owners = {node: pool.key for pool in pools for node in pool.nodes}
        undecided = {node.name for node in self._nodes} if self._undecided else set[str]()
        unowned = [node.name for node in self._gpu_nodes if node.name not in owners]
        verdicts = [entry.verdict() for entry in self._entries]
        return Pools(
            pools=pools,
            owners=owners,
            unowned=tuple(name for name in unowned if name not in undecided),
            undecided=tuple(name for name in unowned if name in undecided),
            owner_labels=self._owner_labels,
            cluster=cluster,
            verdicts=tuple(sorted(verdicts, key=lambda verdict: (verdict.kind, verdict.name))),
        )
