"""From everything that people wrote to pools: which policy has which nodes, and what each is told.

Pure and deterministic: the same objects and nodes give the same pools in the same order. Where
policies contradict each other, no node changes hands.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from libs.policy.findings import Finding, quote_value
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
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
from libs.policy.precedence import (
    ClusterWidePolicy,
    deciding_policy,
    disable_drivers,
    gpu_cluster_conflicts,
    live_policies,
    of_kind,
    report_unrequested_drivers,
    warning,
)
from libs.policy.validation import PRESENT_LABEL
from libs.policy.verdicts import Acceptance, PolicyVerdict, VerdictCollector
from libs.policy.wanted import (
    Operands,
    WantedDriver,
    driver_of_cluster,
    driver_of_pool,
    host_driver,
    operands_of,
)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One policy with the nodes that it has."""

    key: str
    """`<kind>-<name>` in lower case: names its Rollout."""
    kind: str
    name: str
    uid: str
    driver: WantedDriver
    operands: Operands
    upgrade: UpgradePolicy
    strategy: StrategySpec
    nodes: tuple[str, ...]
    """Names, in order."""
    held: tuple[Finding, ...] = ()
    """Why nothing new starts here until somebody mends it."""


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """What all policies together want."""

    pools: tuple[Pool, ...]
    """By key."""
    owners: Mapping[str, str]
    """Keys of pools by names of nodes."""
    unowned: tuple[str, ...]
    """GPU nodes that nobody wants: a driver of ours on one is to go."""
    undecided: tuple[str, ...]
    """GPU nodes of which it cannot be told who wants them: nothing is to happen to them."""
    owner_labels: Mapping[str, str] | None
    """What the owner label of each node should be, and of others absent; None: leave them all."""
    cluster: ClusterPolicy | GpuClusterPolicy | None
    """The one policy that decides for the whole cluster."""
    verdicts: tuple[PolicyVerdict, ...]
    """By kind and name."""


def pool_key(kind: str, name: str) -> str:
    """The key of the pool of a policy."""
    return f"{kind}-{name}".lower()


def assemble_pools(
    reads: Iterable[ParsedPolicy], nodes: Iterable[NodeLabels], *, gpu_clusters: Sequence[str] = ()
) -> Pools:
    """What all policies together want. `gpu_clusters` are the names of GPUCluster objects, which
    belong to a GPU Operator that must not be at work beside a policy for the whole cluster.
    """
    return _Assembly(reads, nodes, gpu_clusters).made()


class _Assembly:
    def __init__(
        self,
        reads: Iterable[ParsedPolicy],
        nodes: Iterable[NodeLabels],
        gpu_clusters: Sequence[str],
    ) -> None:
        self._ledger = VerdictCollector()
        self._reads = [read for read in reads if read.policy and read.kind != ROLLOUT.name]
        self._reads.sort(key=lambda read: read.policy.metadata.age if read.policy else ("", ""))
        self._present = sorted(
            (node for node in nodes if node.labels.get(PRESENT_LABEL) == "true"),
            key=lambda node: node.name,
        )
        self._nodes = self._present
        self._gpu_clusters = sorted(gpu_clusters)
        self._pools: dict[str, Pool] = {}
        self._owner_labels: Mapping[str, str] | None = {}
        self._undecided = False

    def made(self) -> Pools:
        for read in self._reads:
            self._ledger.add_policy(read)
        self._reads = live_policies(self._reads, self._ledger)
        drivers = of_kind(self._reads, NVIDIA_DRIVER.name, NvidiaDriver)
        whole = deciding_policy(self._reads, self._ledger)
        if whole is None:
            self._alone(drivers)
        else:
            self._under(*whole, drivers)
        self._strategies()
        return self._sum(whole[1] if whole else None)

    def _alone(self, drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]]) -> None:
        """Pools without a policy of the whole cluster. Whether it was deleted by mistake or is yet
        to come: drivers that it did not ask for, or paths that it does not say, move no node.
        """
        if not self._gpu_clusters:
            report_unrequested_drivers(drivers, self._ledger)
        self._by_drivers(drivers, None, (), settled=bool(self._gpu_clusters))

    def _under(
        self,
        read: ParsedPolicy,
        cluster: ClusterWidePolicy,
        drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]],
    ) -> None:
        """Pools as the policy of the whole cluster wants them."""
        beside = gpu_cluster_conflicts(read, self._gpu_clusters, self._ledger)
        self._owner_labels = None if beside else {}
        if isinstance(cluster, GpuClusterPolicy):
            disable_drivers(drivers, read, cluster, self._ledger)
            self._whole(read, cluster, host_driver(cluster), AutoUpgradePolicy())
            return
        self._nodes = [node for node in self._nodes if is_for_containers(node, cluster)]
        if cluster.spec.driver.use_nvidia_driver_crd:
            paths = [one for one in read.errors if one.field.startswith("spec.hostPaths")]
            # Until there is a first one nobody has said what nodes should have.
            self._by_drivers(
                drivers, cluster, (*beside, *paths), settled=bool(drivers) and not beside
            )
            self._tell_without(read, drivers)
            return
        disable_drivers(drivers, read, cluster, self._ledger)
        upgrade = cluster.spec.driver.upgrade_policy
        self._whole(read, cluster, driver_of_cluster(cluster), upgrade)

    def _whole(
        self,
        read: ParsedPolicy,
        policy: ClusterWidePolicy,
        driver: WantedDriver,
        upgrade: UpgradePolicy,
    ) -> None:
        """A policy that has every GPU node."""
        key = pool_key(read.kind, policy.metadata.name)
        self._pools[key] = Pool(
            key=key,
            kind=read.kind,
            name=policy.metadata.name,
            uid=policy.metadata.uid,
            driver=driver,
            operands=operands_of(policy),
            upgrade=upgrade,
            strategy=StrategySpec(pool=key),
            nodes=tuple(node.name for node in self._nodes),
            held=self._ledger.errors(read),
        )

    def _by_drivers(
        self,
        drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]],
        cluster: ClusterPolicy | None,
        held: tuple[Finding, ...],
        *,
        settled: bool,
    ) -> None:
        """Every NVIDIADriver has the nodes that it selects; unless `settled`, those it has."""
        live = [driver for _, driver in drivers]
        unfit = {driver.metadata.name: found for read, driver in drivers if (found := _unfit(read))}
        ownership = assign_owners(live, self._nodes, unfit=unfit)
        settled = settled and not ownership.conflicts
        owners = ownership.owners if settled else current_owners(live, self._nodes)
        self._owner_labels = owners if settled else None
        self._undecided = not settled
        nodes: dict[str, list[str]] = {driver.metadata.name: [] for driver in live}
        for node, owner in owners.items():
            nodes[owner].append(node)
        for read, driver in drivers:
            name = driver.metadata.name
            self._tell_owner(read, name, ownership)
            key = pool_key(read.kind, name)
            self._pools[key] = Pool(
                key=key,
                kind=read.kind,
                name=name,
                uid=driver.metadata.uid,
                driver=driver_of_pool(driver, cluster),
                operands=operands_of(cluster),
                upgrade=driver.spec.upgrade_policy,
                strategy=StrategySpec(pool=key),
                nodes=tuple(nodes[name]),
                held=(*held, *self._ledger.errors(read)),
            )

    def _tell_without(
        self, read: ParsedPolicy, drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]]
    ) -> None:
        """The policy of the whole cluster is told of nodes that no driver selects."""
        owned = {node for pool in self._pools.values() for node in pool.nodes}
        without = [node.name for node in self._nodes if node.name not in owned]
        if not without or (drivers and self._undecided):
            return
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        problem = f"leaves GPU nodes without a driver: no NVIDIADriver selects {without[0]}{more}"
        remedy = "make one that selects them, or one with spec.default true"
        found = warning("spec.driver.useNvidiaDriverCRD", "true", problem, remedy)
        self._ledger.add_findings(read, found)

    def _tell_owner(self, read: ParsedPolicy, name: str, ownership: Ownership) -> None:
        if name in ownership.conflicts:
            self._ledger.set_acceptance(read, Acceptance.CONFLICTING, *ownership.conflicts[name])
        elif ownership.conflicts:
            others = " ".join(ownership.conflicts)
            problem = f"keeps the nodes that it has: NVIDIADrivers [{others}] are in conflict"
            remedy = "mend those; new nodes get their driver then"
            self._ledger.add_findings(
                read, warning("metadata.name", quote_value(name), problem, remedy)
            )

    def _strategies(self) -> None:
        """The oldest strategy that names a pool holds for it; one that cannot be read holds it."""
        first: dict[str, str] = {}
        for read, strategy in of_kind(self._reads, ROLLOUT_STRATEGY.name, RolloutStrategy):
            key, name = strategy.spec.pool, strategy.metadata.name
            pool = self._pools.get(key)
            if pool is None:
                known = ", ".join(sorted(self._pools)) or "there are none"
                problem, remedy = "names no pool", f"name one of these pools: {known}"
            elif key in first:
                problem = f'names a pool for which RolloutStrategy "{first[key]}" is older'
                remedy = f'delete this one, or "{first[key]}"'
            else:
                first[key] = name
                held = tuple(_of_strategy(name, found) for found in read.errors)
                self._pools[key] = msgspec.structs.replace(
                    pool, strategy=strategy.spec, held=(*pool.held, *held)
                )
                continue
            found = warning("spec.pool", quote_value(key), problem, remedy)
            self._ledger.set_acceptance(read, Acceptance.IGNORED, found)

    def _sum(self, cluster: ClusterWidePolicy | None) -> Pools:
        made = tuple(self._pools[key] for key in sorted(self._pools))
        owners = {node: pool.key for pool in made for node in pool.nodes}
        among = {node.name for node in self._nodes} if self._undecided else set[str]()
        without = [node.name for node in self._present if node.name not in owners]
        return Pools(
            pools=made,
            owners=owners,
            unowned=tuple(name for name in without if name not in among),
            undecided=tuple(name for name in without if name in among),
            owner_labels=self._owner_labels,
            cluster=cluster,
            verdicts=self._ledger.verdicts(),
        )


def _unfit(read: ParsedPolicy) -> tuple[Finding, ...]:
    """Why it cannot be told which nodes a driver selects."""
    return tuple(
        one for one in read.errors if one.field.startswith(("spec.nodeSelector", "spec.default"))
    )


def _of_strategy(name: str, found: Finding) -> Finding:
    return msgspec.structs.replace(found, field=f'{found.field} of RolloutStrategy "{name}"')
