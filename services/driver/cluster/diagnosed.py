"""The condition Diagnosed: what is wrong with the nodes of a policy, where it has a name. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from libs.contracts.diagnoses import NOTES, Diagnosis, describe
from libs.contracts.words import first_few
from libs.policy.pool import Pools
from libs.policy.status import PolicyStatus, StatusCondition

DIAGNOSED: Final = "Diagnosed"
_NAMED: Final = 3
"""The number of nodes that are named for each diagnosis; the others are counted."""


def with_diagnoses(
    status: PolicyStatus, pools: Pools, diagnoses: Mapping[str, Sequence[Diagnosis]]
) -> PolicyStatus:
    """Name the diagnoses of the policy's nodes, in its status; `diagnoses`: by name of node."""
    nodes = defaultdict[Diagnosis, list[str]](list)
    for pool in pools.pools:
        if (pool.kind, pool.name) == (status.kind, status.name):
            for name in sorted(pool.nodes):
                for each in diagnoses.get(name, ()):
                    nodes[each].append(name)
    if not nodes:
        return status
    named = sorted(nodes, key=lambda each: (each in NOTES, each.value))
    condition = StatusCondition(
        type=DIAGNOSED,
        status=True,
        reason="Notes" if named[0] in NOTES else "Failures",
        message="; ".join(
            f"{each.value} on {some_nodes(nodes[each])}: {describe(each)}" for each in named
        ),
    )
    return replace(status, conditions=(*status.conditions, condition))


def some_nodes(nodes: Sequence[str]) -> str:
    """Return so many names as a message about several problems has room for."""
    return first_few(nodes, _NAMED)
