"""Which pool has a node that no record says it of."""

from collections.abc import Sequence
from typing import Any

import msgspec

from libs.policy.owners import NodeLabels
from libs.policy.pool_index import PoolIndex
from tests.unit.policy.situations import cluster_policy, node

WHOLE = "clusterpolicy-cluster-policy"


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """As the API server has it."""

    name: str
    uid: str = "u"
    generation: int = 1
    creation_timestamp: str = "2027-01-15T08:00:00Z"
    deletion_timestamp: str = ""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """An object."""

    metadata: Metadata
    spec: Any


def stored_policy(obj: dict[str, Any]) -> Policy:
    """As it is followed."""
    return Policy(metadata=Metadata(name=obj["metadata"]["name"]), spec=obj["spec"])


def test_a_node_belongs_to_the_policy_of_the_whole_cluster_and_others_to_none() -> None:
    policies = {"ClusterPolicy": [stored_policy(cluster_policy())]}
    bare = NodeLabels(name="b", labels={})
    belonging = PoolIndex(policies=policies, nodes=lambda: (node("a"), bare))
    assert (belonging.pool_of("a"), belonging.pool_of("b"), belonging.pool_of("c")) == (
        WHOLE,
        "",
        "",
    )


def test_nobody_is_asked_again_until_something_changed() -> None:
    asked, there = list[int](), [node("a")]
    policies: dict[str, list[Policy]] = {"ClusterPolicy": []}

    def nodes() -> Sequence[NodeLabels]:
        asked.append(len(there))
        return there

    belonging = PoolIndex(policies=policies, nodes=nodes)
    assert [belonging.pool_of("a"), belonging.pool_of("a")] == ["", ""]
    policies["ClusterPolicy"].append(stored_policy(cluster_policy()))
    assert belonging.pool_of("a") == ""
    belonging.invalidate("what was", "what is")
    assert [belonging.pool_of("a"), belonging.pool_of("a")] == [WHOLE, WHOLE]
    assert asked == [1, 1]
