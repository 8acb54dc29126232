"""The condition Diagnosed: what is wrong with the nodes of a policy, where it has a name. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from libs.contracts.diagnoses import NOTES, Diagnosis, describe
from libs.contracts.words import first_few
from libs.policy.pool import Pools
from libs.policy.status import PolicyStatus, StatusCondition

T = TypeVar("T")

DIAGNOSED: Final = "Diagnosed"
_NAMED: Final = 3
"""The number of nodes that are named for each diagnosis; the others are counted."""


def diagnosed_condition(
    status: PolicyStatus, pools: Pools, diagnoses: Mapping[str, Sequence[Diagnosis]]
) -> StatusCondition | None:
    """Name the diagnoses of the policy's nodes; `diagnoses`: by name of node."""
    nodes = nodes_of(status, pools, diagnoses)
    if not nodes:
        return None
    named = sorted(nodes, key=lambda each: (each in NOTES, each.value))
    return StatusCondition(
        type=DIAGNOSED,
        status=True,
        reason="Notes" if named[0] in NOTES else "Failures",
        message="; ".join(
            f"{each.value} on {some_nodes(nodes[each])}: {describe(each)}" for each in named
        ),
    )


def nodes_of(
    status: PolicyStatus, pools: Pools, found: Mapping[str, Iterable[T]]
) -> dict[T, list[str]]:
    """Return by what was found of the policy's nodes the names of these nodes, in their order."""
    nodes = defaultdict[T, list[str]](list)
    for pool in pools.pools:
        if (pool.kind, pool.name) == (status.kind, status.name):
            for name in sorted(found.keys() & set(pool.nodes)):
                for each in found[name]:
                    nodes[each].append(name)
    return nodes


def some_nodes(nodes: Sequence[str]) -> str:
    """Return so many names as a message about several problems has room for."""
    return first_few(nodes, _NAMED)
