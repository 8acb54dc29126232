"""What people want of all nodes, from the policies that are there. Pure."""

from collections.abc import Collection, Mapping

from libs.kube.customs import Written
from libs.policy.pools import pools
from libs.policy.reading import read_object
from libs.policy.wanted import operands_of
from services.discovery.cluster.deciding import Wish


def wished(policies: Mapping[str, Collection[Written]], *, gpu_clusters: Collection[str]) -> Wish:
    """Which operands nodes are to have: a GPU Operator's own GPUCluster leaves that undecided."""
    reads = [
        read_object(kind, metadata=one.metadata, spec=one.spec)
        for kind, found in policies.items()
        for one in found
    ]
    cluster = pools(reads, (), gpu_clusters=tuple(gpu_clusters)).cluster
    return Wish(
        cluster=None if gpu_clusters else cluster, gpu_labels=operands_of(cluster).gpu_labels
    )
