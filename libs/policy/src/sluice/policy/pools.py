"""From everything that people wrote to pools: which policy has which nodes, and what each is told.

Pure and deterministic: the same objects and nodes give the same pools in the same order. Where
policies contradict each other, no node changes hands.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from sluice.policy.checks import PRESENT_LABEL
from sluice.policy.findings import Finding, Severity, shown
from sluice.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy
from sluice.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY, GpuClusterPolicy
from sluice.policy.kinds.nvidia_driver import NVIDIA_DRIVER, NvidiaDriver
from sluice.policy.kinds.rollout import ROLLOUT
from sluice.policy.kinds.strategy import ROLLOUT_STRATEGY, RolloutStrategy, StrategySpec
from sluice.policy.kinds.upgrades import UpgradePolicy, WillingUpgradePolicy
from sluice.policy.owners import NodeFacts, Ownership, assigned, kept
from sluice.policy.reading import Read
from sluice.policy.told import Ledger, Standing, Told
from sluice.policy.wanted import (
    Operands,
    WantedDriver,
    driver_of_cluster,
    driver_of_pool,
    driver_on_hosts,
    operands_of,
)

Cluster = ClusterPolicy | GpuClusterPolicy
S = TypeVar("S", bound=msgspec.Struct)


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
    """GPU nodes that are in no pool."""
    owner_labels: Mapping[str, str] | None
    """What the owner label of each node should be, and of others absent; None: leave them all."""
    cluster: ClusterPolicy | GpuClusterPolicy | None
    """The one policy that decides for the whole cluster."""
    told: tuple[Told, ...]
    """By kind and name."""


def pool_key(kind: str, name: str) -> str:
    """The key of the pool of a policy."""
    return f"{kind}-{name}".lower()


def pools(
    reads: Iterable[Read], nodes: Iterable[NodeFacts], *, gpu_clusters: Sequence[str] = ()
) -> Pools:
    """What all policies together want. `gpu_clusters` are the names of GPUCluster objects, which
    belong to a GPU Operator that must not be at work beside a ClusterPolicy.
    """
    return _Assembly(reads, nodes, gpu_clusters).made()


class _Assembly:
    def __init__(
        self, reads: Iterable[Read], nodes: Iterable[NodeFacts], gpu_clusters: Sequence[str]
    ) -> None:
        self._ledger = Ledger()
        self._reads = [read for read in reads if read.policy and read.kind != ROLLOUT.name]
        self._reads.sort(key=lambda read: read.policy.metadata.age if read.policy else ("", ""))
        self._nodes = sorted(
            (node for node in nodes if node.labels.get(PRESENT_LABEL) == "true"),
            key=lambda node: node.name,
        )
        self._gpu_clusters = sorted(gpu_clusters)
        self._pools: dict[str, Pool] = {}
        self._owner_labels: Mapping[str, str] | None = {}

    def made(self) -> Pools:
        for read in self._reads:
            self._ledger.open(read)
        self._reads = [read for read in self._reads if not self._deleting(read)]
        drivers = self._of(NVIDIA_DRIVER.name, NvidiaDriver)
        whole = self._singleton()
        if whole is None:
            self._by_drivers(drivers, None, ())
        else:
            self._under(*whole, drivers)
        self._strategies()
        return self._sum(whole[1] if whole else None)

    def _under(
        self, read: Read, cluster: Cluster, drivers: Sequence[tuple[Read, NvidiaDriver]]
    ) -> None:
        """Pools as the policy of the whole cluster wants them."""
        foreign = self._foreign(read)
        if isinstance(cluster, GpuClusterPolicy):
            self._disable(drivers, f'GPUClusterPolicy "{cluster.metadata.name}" names the driver')
            self._whole(read, cluster, driver_on_hosts(cluster), WillingUpgradePolicy())
        elif cluster.spec.driver.use_nvidia_driver_crd:
            self._by_drivers(drivers, cluster, foreign)
        else:
            self._disable(drivers, "useNvidiaDriverCRD is not enabled in ClusterPolicy")
            upgrade = cluster.spec.driver.upgrade_policy
            self._whole(read, cluster, driver_of_cluster(cluster), upgrade)

    def _of(self, kind: str, made: type[S]) -> list[tuple[Read, S]]:
        """Live objects of a kind, the oldest first."""
        return [
            (read, read.policy)
            for read in self._reads
            if read.kind == kind and isinstance(read.policy, made)
        ]

    def _deleting(self, read: Read) -> bool:
        if not read.policy or not read.policy.metadata.deleting:
            return False
        problem = "is set: the object is being deleted, and decides nothing any more"
        at = read.policy.metadata.deletion_timestamp
        self._ledger.stand(
            read, Standing.DELETING, _warning("metadata.deletionTimestamp", at, problem)
        )
        return True

    def _singleton(self) -> tuple[Read, Cluster] | None:
        """The oldest policy for the whole cluster; the others are told that they are ignored."""
        whole: list[tuple[Read, Cluster]] = [
            *self._of(CLUSTER_POLICY.name, ClusterPolicy),
            *self._of(GPU_CLUSTER_POLICY.name, GpuClusterPolicy),
        ]
        whole.sort(key=lambda one: (*one[1].metadata.age, one[0].kind))
        for read, policy in whole[1:]:
            first, oldest = whole[0]
            name = policy.metadata.name
            problem = (
                f'is ignored: {first.kind} "{oldest.metadata.name}" is older, and one policy'
                " decides for the whole cluster"
            )
            remedy = f'delete this one, or {first.kind} "{oldest.metadata.name}"'
            found = _warning("metadata.name", shown(name), problem, remedy)
            self._ledger.stand(read, Standing.IGNORED, found)
        return whole[0] if whole else None

    def _foreign(self, read: Read) -> tuple[Finding, ...]:
        """Objects of a GPU Operator that work on the same nodes."""
        found = tuple(
            Finding(
                field="metadata.name",
                value=shown(read.policy.metadata.name if read.policy else ""),
                problem=(
                    f'is not followed: conflicting GPUCluster resource "{name}" detected;'
                    f" {read.kind} and GPUCluster cannot co-exist"
                ),
                remedy="delete one of the two",
            )
            for name in self._gpu_clusters
        )
        if found:
            self._ledger.stand(read, Standing.CONFLICTING, *found)
            self._owner_labels = None
        return found

    def _disable(self, drivers: Sequence[tuple[Read, NvidiaDriver]], because: str) -> None:
        for read, driver in drivers:
            problem = f"is not asked: {because}"
            remedy = "set spec.driver.useNvidiaDriverCRD of the ClusterPolicy to true, or delete it"
            found = _warning("metadata.name", shown(driver.metadata.name), problem, remedy)
            self._ledger.stand(read, Standing.DISABLED, found)

    def _whole(
        self, read: Read, policy: Cluster, driver: WantedDriver, upgrade: UpgradePolicy
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
        drivers: Sequence[tuple[Read, NvidiaDriver]],
        cluster: ClusterPolicy | None,
        foreign: tuple[Finding, ...],
    ) -> None:
        """Every NVIDIADriver has the nodes that it selects."""
        live = [driver for _, driver in drivers]
        ownership = assigned(live, self._nodes)
        settled = not (ownership.conflicts or foreign)
        owners = ownership.owners if settled else kept(live, self._nodes)
        self._owner_labels = owners if settled else None
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
                held=(*foreign, *self._ledger.errors(read)),
            )

    def _tell_owner(self, read: Read, name: str, ownership: Ownership) -> None:
        if name in ownership.conflicts:
            self._ledger.stand(read, Standing.CONFLICTING, *ownership.conflicts[name])
        elif ownership.conflicts:
            others = " ".join(ownership.conflicts)
            problem = f"keeps the nodes that it has: NVIDIADrivers [{others}] are in conflict"
            remedy = "mend those; new nodes get their driver then"
            self._ledger.add(read, _warning("metadata.name", shown(name), problem, remedy))

    def _strategies(self) -> None:
        """The oldest strategy that names a pool holds for it; one that cannot be read holds it."""
        first: dict[str, str] = {}
        for read, strategy in self._of(ROLLOUT_STRATEGY.name, RolloutStrategy):
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
            found = _warning("spec.pool", shown(key), problem, remedy)
            self._ledger.stand(read, Standing.IGNORED, found)

    def _sum(self, cluster: Cluster | None) -> Pools:
        made = tuple(self._pools[key] for key in sorted(self._pools))
        owners = {node: pool.key for pool in made for node in pool.nodes}
        return Pools(
            pools=made,
            owners=owners,
            unowned=tuple(node.name for node in self._nodes if node.name not in owners),
            owner_labels=self._owner_labels,
            cluster=cluster,
            told=self._ledger.told(),
        )


def _warning(field: str, value: str, problem: str, remedy: str = "") -> Finding:
    return Finding(
        field=field, value=value, problem=problem, remedy=remedy, severity=Severity.WARNING
    )


def _of_strategy(name: str, found: Finding) -> Finding:
    return msgspec.structs.replace(found, field=f'{found.field} of RolloutStrategy "{name}"')
