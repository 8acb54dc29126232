"""Assemble pools from all policies: which policy has which nodes, and a verdict on each policy.

Pure and deterministic: the same objects and nodes give the same pools in the same order. While
policies conflict, all nodes keep their owners.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from libs.policy.findings import Acceptance, Finding, PolicyVerdict, Severity, quote_value
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY, GpuClusterPolicy
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER, NvidiaDriver
from libs.policy.kinds.rollout import ROLLOUT
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY, RolloutStrategy, StrategySpec
from libs.policy.kinds.upgrade_policy import AutoUpgradePolicy, UpgradePolicy
from libs.policy.manifests import ParsedPolicy
from libs.policy.owners import (
    NodeLabels,
    Ownership,
    assign_owners,
    current_owners,
    is_for_containers,
)
from libs.policy.validation import PRESENT_LABEL
from libs.policy.wanted import (
    Operands,
    WantedDriver,
    driver_of_cluster,
    driver_of_pool,
    host_driver,
    operands_of,
)

ClusterWidePolicy = ClusterPolicy | GpuClusterPolicy
S = TypeVar("S", bound=msgspec.Struct)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One policy and the nodes that belong to it."""

    key: str
    """`<kind>-<name>` in lower case; also the name of its Rollout."""
    kind: str
    name: str
    uid: str
    driver: WantedDriver
    operands: Operands
    upgrade: UpgradePolicy
    strategy: StrategySpec
    nodes: tuple[str, ...]
    """Sorted by name."""
    held: tuple[Finding, ...] = ()
    """Errors that keep anything new from starting in this pool."""


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """The pools of all policies."""

    pools: tuple[Pool, ...]
    """Sorted by key."""
    owners: Mapping[str, str]
    """Pool keys by node name."""
    unowned: tuple[str, ...]
    """GPU nodes that no policy selects: a driver that Sluice installed there is removed."""
    undecided: tuple[str, ...]
    """GPU nodes whose owner cannot be determined: they are left as they are."""
    owner_labels: Mapping[str, str] | None
    """Wanted owner labels by node; other nodes must have none. None: change no owner label."""
    cluster: ClusterPolicy | GpuClusterPolicy | None
    """The cluster-wide policy that takes effect."""
    verdicts: tuple[PolicyVerdict, ...]
    """Sorted by kind and name."""


def pool_key(kind: str, name: str) -> str:
    """Return the key of a policy's pool."""
    return f"{kind}-{name}".lower()


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
        self._collector = VerdictCollector()
        self._policies = [
            parsed for parsed in policies if parsed.policy and parsed.kind != ROLLOUT.name
        ]
        self._policies.sort(
            key=lambda parsed: parsed.policy.metadata.age if parsed.policy else ("", "")
        )
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
        for parsed in self._policies:
            self._collector.add_policy(parsed)
        self._policies = live_policies(self._policies, self._collector)
        drivers = of_kind(self._policies, NVIDIA_DRIVER.name, NvidiaDriver)
        deciding = deciding_policy(self._policies, self._collector)
        if deciding is None:
            self._without_cluster_policy(drivers)
        else:
            self._with_cluster_policy(*deciding, drivers)
        self._strategies()
        return self._result(deciding[1] if deciding else None)

    def _without_cluster_policy(self, drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]]) -> None:
        """Build pools without a cluster-wide policy.

        That policy may have been deleted by mistake or may still be created, so no node changes
        its owner, and no driver changes because default paths apply.
        """
        if not self._gpu_clusters:
            report_unrequested_drivers(drivers, self._collector)
        self._driver_pools(drivers, None, (), settled=bool(self._gpu_clusters))

    def _with_cluster_policy(
        self,
        parsed: ParsedPolicy,
        cluster: ClusterWidePolicy,
        drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]],
    ) -> None:
        """Build the pools that the cluster-wide policy asks for."""
        conflicts = gpu_cluster_conflicts(parsed, self._gpu_clusters, self._collector)
        self._owner_labels = None if conflicts else {}
        if isinstance(cluster, GpuClusterPolicy):
            disable_drivers(drivers, parsed, cluster, self._collector)
            self._cluster_pool(parsed, cluster, host_driver(cluster), AutoUpgradePolicy())
            return
        self._nodes = [node for node in self._nodes if is_for_containers(node, cluster)]
        if cluster.spec.driver.use_nvidia_driver_crd:
            paths = [found for found in parsed.errors if found.field.startswith("spec.hostPaths")]
            # Without any NVIDIADriver it is not known yet which driver the nodes should have.
            self._driver_pools(
                drivers, cluster, (*conflicts, *paths), settled=bool(drivers) and not conflicts
            )
            self._report_uncovered_nodes(parsed, drivers)
            return
        disable_drivers(drivers, parsed, cluster, self._collector)
        upgrade = cluster.spec.driver.upgrade_policy
        self._cluster_pool(parsed, cluster, driver_of_cluster(cluster), upgrade)

    def _cluster_pool(
        self,
        parsed: ParsedPolicy,
        policy: ClusterWidePolicy,
        driver: WantedDriver,
        upgrade: UpgradePolicy,
    ) -> None:
        """Build the pool of a policy that has every GPU node."""
        key = pool_key(parsed.kind, policy.metadata.name)
        self._pools[key] = Pool(
            key=key,
            kind=parsed.kind,
            name=policy.metadata.name,
            uid=policy.metadata.uid,
            driver=driver,
            operands=operands_of(policy),
            upgrade=upgrade,
            strategy=StrategySpec(pool=key),
            nodes=tuple(node.name for node in self._nodes),
            held=self._collector.errors(parsed),
        )

    def _driver_pools(
        self,
        drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]],
        cluster: ClusterPolicy | None,
        held: tuple[Finding, ...],
        *,
        settled: bool,
    ) -> None:
        """Build a pool for each NVIDIADriver, with the nodes that it selects.

        Unless `settled`, nodes keep their current owners.
        """
        live = [driver for _, driver in drivers]
        selection_errors = {
            driver.metadata.name: found
            for parsed, driver in drivers
            if (found := _selection_errors(parsed))
        }
        ownership = assign_owners(live, self._nodes, unfit=selection_errors)
        settled = settled and not ownership.conflicts
        owners = ownership.owners if settled else current_owners(live, self._nodes)
        self._owner_labels = owners if settled else None
        self._undecided = not settled
        nodes: dict[str, list[str]] = {driver.metadata.name: [] for driver in live}
        for node, owner in owners.items():
            nodes[owner].append(node)
        for parsed, driver in drivers:
            name = driver.metadata.name
            self._report_conflicts(parsed, name, ownership)
            key = pool_key(parsed.kind, name)
            self._pools[key] = Pool(
                key=key,
                kind=parsed.kind,
                name=name,
                uid=driver.metadata.uid,
                driver=driver_of_pool(driver, cluster),
                operands=operands_of(cluster),
                upgrade=driver.spec.upgrade_policy,
                strategy=StrategySpec(pool=key),
                nodes=tuple(nodes[name]),
                held=(*held, *self._collector.errors(parsed)),
            )

    def _report_uncovered_nodes(
        self, parsed: ParsedPolicy, drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]]
    ) -> None:
        """Warn on the cluster-wide policy about nodes that no driver selects."""
        owned = {node for pool in self._pools.values() for node in pool.nodes}
        uncovered = [node.name for node in self._nodes if node.name not in owned]
        if not uncovered or (drivers and self._undecided):
            return
        more = f" and {len(uncovered) - 1} more" if len(uncovered) > 1 else ""
        problem = f"leaves GPU nodes without a driver: no NVIDIADriver selects {uncovered[0]}{more}"
        remedy = "create one that selects them, or one with spec.default true"
        found = warning("spec.driver.useNvidiaDriverCRD", "true", problem, remedy)
        self._collector.add_findings(parsed, found)

    def _report_conflicts(self, parsed: ParsedPolicy, name: str, ownership: Ownership) -> None:
        if name in ownership.conflicts:
            self._collector.set_acceptance(
                parsed, Acceptance.CONFLICTING, *ownership.conflicts[name]
            )
        elif ownership.conflicts:
            others = " ".join(ownership.conflicts)
            problem = f"keeps its current nodes: NVIDIADrivers [{others}] conflict"
            remedy = "resolve their conflict; new nodes then get their driver"
            self._collector.add_findings(
                parsed, warning("metadata.name", quote_value(name), problem, remedy)
            )

    def _strategies(self) -> None:
        """Apply the oldest strategy that names a pool; its errors hold the pool."""
        first: dict[str, str] = {}
        for parsed, strategy in of_kind(self._policies, ROLLOUT_STRATEGY.name, RolloutStrategy):
            key, name = strategy.spec.pool, strategy.metadata.name
            pool = self._pools.get(key)
            if pool is None:
                known = ", ".join(sorted(self._pools)) or "there are none"
                problem, remedy = "is not the key of a pool", f"use one of these: {known}"
            elif key in first:
                problem = f'names a pool to which the older RolloutStrategy "{first[key]}" applies'
                remedy = f'delete this one, or "{first[key]}"'
            else:
                first[key] = name
                held = tuple(_with_strategy_name(name, found) for found in parsed.errors)
                self._pools[key] = msgspec.structs.replace(
                    pool, strategy=strategy.spec, held=(*pool.held, *held)
                )
                continue
            found = warning("spec.pool", quote_value(key), problem, remedy)
            self._collector.set_acceptance(parsed, Acceptance.IGNORED, found)

    def _result(self, cluster: ClusterWidePolicy | None) -> Pools:
        pools = tuple(self._pools[key] for key in sorted(self._pools))
        owners = {node: pool.key for pool in pools for node in pool.nodes}
        undecided = {node.name for node in self._nodes} if self._undecided else set[str]()
        unowned = [node.name for node in self._gpu_nodes if node.name not in owners]
        return Pools(
            pools=pools,
            owners=owners,
            unowned=tuple(name for name in unowned if name not in undecided),
            undecided=tuple(name for name in unowned if name in undecided),
            owner_labels=self._owner_labels,
            cluster=cluster,
            verdicts=self._collector.verdicts(),
        )


def _selection_errors(parsed: ParsedPolicy) -> tuple[Finding, ...]:
    """Return the errors that make a driver's node selection unusable."""
    return tuple(
        found
        for found in parsed.errors
        if found.field.startswith(("spec.nodeSelector", "spec.default"))
    )


def _with_strategy_name(name: str, found: Finding) -> Finding:
    return msgspec.structs.replace(found, field=f'{found.field} of RolloutStrategy "{name}"')


class VerdictCollector:
    """Collect the acceptance of policy objects and the findings about them."""

    def __init__(self) -> None:
        self._policies: dict[tuple[str, str], ParsedPolicy] = {}
        self._acceptance: dict[tuple[str, str], Acceptance] = {}
        self._reasons: dict[tuple[str, str], list[Finding]] = {}
        self._findings: dict[tuple[str, str], list[Finding]] = {}

    def add_policy(self, parsed: ParsedPolicy) -> None:
        """Add an object as active, with the findings of its parsing."""
        key = _key(parsed)
        self._policies[key] = parsed
        self._acceptance[key] = Acceptance.ACTIVE
        self._reasons[key] = []
        self._findings[key] = list(parsed.findings)

    def set_acceptance(
        self, parsed: ParsedPolicy, acceptance: Acceptance, *reasons: Finding
    ) -> None:
        key = _key(parsed)
        self._acceptance[key] = acceptance
        self._reasons[key].extend(reasons)
        known = self._findings[key]
        known.extend(reason for reason in reasons if reason not in known)

    def add_findings(self, parsed: ParsedPolicy, *findings: Finding) -> None:
        self._findings[_key(parsed)].extend(findings)

    def errors(self, parsed: ParsedPolicy) -> tuple[Finding, ...]:
        """Return the errors found so far."""
        findings = self._findings[_key(parsed)]
        return tuple(found for found in findings if found.severity is Severity.ERROR)

    def verdicts(self) -> tuple[PolicyVerdict, ...]:
        """Return the verdicts, sorted by kind and name."""
        return tuple(self._verdict(key) for key in sorted(self._policies))

    def _verdict(self, key: tuple[str, str]) -> PolicyVerdict:
        policy = self._policies[key].policy
        return PolicyVerdict(
            kind=key[0],
            name=key[1],
            uid=policy.metadata.uid if policy else "",
            generation=policy.metadata.generation if policy else 0,
            acceptance=self._acceptance[key],
            reasons=tuple(self._reasons[key]),
            findings=tuple(self._findings[key]),
        )


def _key(parsed: ParsedPolicy) -> tuple[str, str]:
    return parsed.kind, parsed.policy.metadata.name if parsed.policy else ""


def of_kind(
    policies: Iterable[ParsedPolicy], kind: str, struct: type[S]
) -> list[tuple[ParsedPolicy, S]]:
    """Return the policies of one kind, in the given order."""
    return [
        (parsed, parsed.policy)
        for parsed in policies
        if parsed.kind == kind and isinstance(parsed.policy, struct)
    ]


def live_policies(
    policies: Iterable[ParsedPolicy], collector: VerdictCollector
) -> list[ParsedPolicy]:
    """Return the policies that are not being deleted, and report those that are."""
    live: list[ParsedPolicy] = []
    for parsed in policies:
        if not parsed.policy or not parsed.policy.metadata.deleting:
            live.append(parsed)
            continue
        problem = "is set: the object is being deleted and no longer takes effect"
        deleted_at = parsed.policy.metadata.deletion_timestamp
        found = warning("metadata.deletionTimestamp", deleted_at, problem)
        collector.set_acceptance(parsed, Acceptance.DELETING, found)
    return live


def deciding_policy(
    policies: Sequence[ParsedPolicy], collector: VerdictCollector
) -> tuple[ParsedPolicy, ClusterWidePolicy] | None:
    """Return the oldest cluster-wide policy, and report the others as ignored."""
    candidates: list[tuple[ParsedPolicy, ClusterWidePolicy]] = [
        *of_kind(policies, CLUSTER_POLICY.name, ClusterPolicy),
        *of_kind(policies, GPU_CLUSTER_POLICY.name, GpuClusterPolicy),
    ]
    candidates.sort(key=lambda candidate: (*candidate[1].metadata.age, candidate[0].kind))
    for parsed, policy in candidates[1:]:
        first, oldest = candidates[0]
        name = policy.metadata.name
        problem = (
            f'is ignored: {first.kind} "{oldest.metadata.name}" is older, and only one'
            " cluster-wide policy takes effect"
        )
        remedy = f'delete this one, or {first.kind} "{oldest.metadata.name}"'
        found = warning("metadata.name", quote_value(name), problem, remedy)
        collector.set_acceptance(parsed, Acceptance.IGNORED, found)
    return candidates[0] if candidates else None


def gpu_cluster_conflicts(
    parsed: ParsedPolicy, gpu_clusters: Sequence[str], collector: VerdictCollector
) -> tuple[Finding, ...]:
    """Report GPUCluster objects, whose GPU Operator would manage the same nodes."""
    found = tuple(
        Finding(
            field="metadata.name",
            value=quote_value(parsed.policy.metadata.name if parsed.policy else ""),
            problem="does not take effect",
            quoted=(
                f'conflicting GPUCluster resource "{name}" detected;'
                f" {parsed.kind} and GPUCluster cannot co-exist"
            ),
            remedy="delete one of the two",
        )
        for name in gpu_clusters
    )
    if found:
        collector.set_acceptance(parsed, Acceptance.CONFLICTING, *found)
    return found


def disable_drivers(
    drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]],
    parsed: ParsedPolicy,
    cluster: ClusterWidePolicy,
    collector: VerdictCollector,
) -> None:
    """Report NVIDIADrivers that the cluster-wide policy makes ineffective."""
    because = quoted = ""
    if isinstance(cluster, ClusterPolicy):
        quoted = "useNvidiaDriverCRD is not enabled in ClusterPolicy"
        remedy = "set spec.driver.useNvidiaDriverCRD of the ClusterPolicy to true, or delete it"
    else:
        because = f': {parsed.kind} "{cluster.metadata.name}" determines the driver'
        remedy = f'delete this one, or {parsed.kind} "{cluster.metadata.name}"'
    for one, driver in drivers:
        name = quote_value(driver.metadata.name)
        found = warning("metadata.name", name, f"is not used{because}", remedy, quoted)
        collector.set_acceptance(one, Acceptance.DISABLED, found)


def report_unrequested_drivers(
    drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]], collector: VerdictCollector
) -> None:
    """Report NVIDIADrivers while there is no cluster-wide policy."""
    for parsed, driver in drivers:
        found = Finding(
            field="metadata.name",
            value=quote_value(driver.metadata.name),
            problem="does not take effect: no ClusterPolicy enables NVIDIADrivers",
            remedy="create one with spec.driver.useNvidiaDriverCRD true, or delete this object",
        )
        collector.add_findings(parsed, found)


def warning(field: str, value: str, problem: str, remedy: str = "", quoted: str = "") -> Finding:
    return Finding(
        field=field,
        value=value,
        problem=problem,
        quoted=quoted,
        remedy=remedy,
        severity=Severity.WARNING,
    )
