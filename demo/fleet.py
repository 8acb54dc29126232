"""The machines of the demo and their pools. Pure."""

from typing import Final

import msgspec

from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.pool import pool_key

FEWEST, MOST = 1, 24
DEFAULT_NODES: Final = 12
TRAINING, SERVING = "training", "serving"
POOL_LABEL: Final = "pool"
"""The label of a Node by which its pool's driver selects it."""


class FleetPool(msgspec.Struct, frozen=True):
    """The nodes of one NVIDIADriver."""

    name: str
    nodes: tuple[str, ...]

    @property
    def key(self) -> str:
        return pool_key(NVIDIA_DRIVER.name, self.name)

    @property
    def selector(self) -> dict[str, str]:
        return {POOL_LABEL: self.name}

    @property
    def max_unavailable(self) -> int:
        """Two thirds of the nodes: one may be cordoned by a person for the whole time, and others
        wait for a job or a budget.
        """
        return max(1, 2 * len(self.nodes) // 3)


class Fleet(msgspec.Struct, frozen=True):
    """All machines; a fleet of one has the first pool only."""

    pools: tuple[FleetPool, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for pool in self.pools for node in pool.nodes)

    @property
    def pool_of(self) -> dict[str, str]:
        """The names of pools by node."""
        return {node: pool.name for pool in self.pools for node in pool.nodes}

    def pool(self, name: str) -> FleetPool | None:
        return next((each for each in self.pools if each.name == name), None)


def make_fleet(count: int) -> Fleet:
    """Divide this many machines into two pools, the first of which is the larger one."""
    nodes = tuple(f"node-{number + 1}" for number in range(count))
    half = (count + 1) // 2
    divided = (FleetPool(TRAINING, nodes[:half]), FleetPool(SERVING, nodes[half:]))
    return Fleet(tuple(pool for pool in divided if pool.nodes))
