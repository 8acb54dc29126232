"""Pools: the nodes of one policy, and what the policy wants on them."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from libs.policy.findings import Finding, PolicyVerdict
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod, Operands, WantedDriver

ClusterWidePolicy = ClusterPolicy | GpuClusterPolicy


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
    """Errors because of which no upgrade starts in this pool."""


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """The pools of all policies."""

    pools: tuple[Pool, ...]
    """Sorted by key."""
    owners: Mapping[str, str]
    """Pool keys by node name."""
    unowned: tuple[str, ...]
    """GPU nodes that no policy selects: a driver that Sluice installed there is removed."""
    undecided: tuple[str, ...]
    """GPU nodes without a determinable owner: they are left as they are."""
    owner_labels: Mapping[str, str] | None
    """Wanted owner labels by node; other nodes must have none. None: change no owner label."""
    cluster: ClusterPolicy | GpuClusterPolicy | None
    """The cluster-wide policy that takes effect."""
    verdicts: tuple[PolicyVerdict, ...]
    """Sorted by kind and name."""


def pool_key(kind: str, name: str) -> str:
    """Return the key of a policy's pool."""
    return f"{kind}-{name}".lower()


_PRE_INSTALLED: Final = "preinstalled"
"""No kind of policy, so that no other pool has such a key."""


def pre_installed_key(pool: str) -> str:
    """Return the key of the pool of nodes whose driver came with the machine."""
    return f"{_PRE_INSTALLED}-{pool}"


def divide_pool(pool: Pool, pre_installed: Collection[str]) -> Iterator[Pool]:
    """Yield the pool, and one of its own for those of its nodes whose driver is pre-installed.

    Nothing is installed on these, and they occupy no place in the budget of the others.
    """
    own = tuple(name for name in pool.nodes if name in pre_installed)
    if not own or pool.driver.method is InstallMethod.PRE_INSTALLED:
        yield pool
        return
    others = tuple(name for name in pool.nodes if name not in pre_installed)
    yield msgspec.structs.replace(pool, nodes=others)
    driver = WantedDriver(method=InstallMethod.PRE_INSTALLED, pods=pool.driver.pods)
    key = pre_installed_key(pool.key)
    yield msgspec.structs.replace(pool, key=key, driver=driver, nodes=own)
