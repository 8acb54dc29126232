"""Pools of nodes without a recorded pool."""

from collections.abc import Sequence
from typing import Any

import msgspec

from libs.policy.owners import NodeLabels
from libs.policy.pool_index import PoolIndex
from tests.unit.policy.situations import cluster_policy, node

POOL = "clusterpolicy-cluster-policy"


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str = "u"
    generation: int = 1
    creation_timestamp: str = "2027-01-15T08:00:00Z"
    deletion_timestamp: str = ""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Metadata
    spec: Any


def stored_policy(obj: dict[str, Any]) -> Policy:
    return Policy(metadata=Metadata(name=obj["metadata"]["name"]), spec=obj["spec"])


def test_gpu_nodes_belong_to_the_cluster_policy_and_others_to_none() -> None:
    policies = {"ClusterPolicy": [stored_policy(cluster_policy())]}
    bare = NodeLabels(name="b", labels={})
    index = PoolIndex(policies=policies, nodes=lambda: (node("a"), bare))
    assert (index.pool_of("a"), index.pool_of("b"), index.pool_of("c")) == (POOL, "", "")


def test_pools_are_computed_again_only_after_invalidation() -> None:
    calls, stored_nodes = list[int](), [node("a")]
    policies: dict[str, list[Policy]] = {"ClusterPolicy": []}

    def nodes() -> Sequence[NodeLabels]:
        calls.append(len(stored_nodes))
        return stored_nodes

    index = PoolIndex(policies=policies, nodes=nodes)
    assert [index.pool_of("a"), index.pool_of("a")] == ["", ""]
    policies["ClusterPolicy"].append(stored_policy(cluster_policy()))
    assert index.pool_of("a") == ""
    index.invalidate("what was", "what is")
    assert [index.pool_of("a"), index.pool_of("a")] == [POOL, POOL]
    assert calls == [1, 1]
