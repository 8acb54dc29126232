"""Which of several objects decides, and what the others are told.

Knows kinds, ages and deletions; which nodes anybody has is `libs.policy.pools`.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from libs.policy.findings import Finding, Severity, quote_value
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY, GpuClusterPolicy
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.manifests import ParsedPolicy
from libs.policy.verdicts import Acceptance, VerdictCollector

ClusterWidePolicy = ClusterPolicy | GpuClusterPolicy
S = TypeVar("S", bound=msgspec.Struct)


def of_kind(
    reads: Iterable[ParsedPolicy], kind: str, made: type[S]
) -> list[tuple[ParsedPolicy, S]]:
    """The objects of one kind, in the order in which they come."""
    return [
        (read, read.policy) for read in reads if read.kind == kind and isinstance(read.policy, made)
    ]


def live_policies(reads: Iterable[ParsedPolicy], ledger: VerdictCollector) -> list[ParsedPolicy]:
    """Those that nobody deletes; the others are told that they decide nothing any more."""
    return [read for read in reads if not _deleting(read, ledger)]


def _deleting(read: ParsedPolicy, ledger: VerdictCollector) -> bool:
    if not read.policy or not read.policy.metadata.deleting:
        return False
    problem = "is set: the object is being deleted, and decides nothing any more"
    at = read.policy.metadata.deletion_timestamp
    ledger.set_acceptance(
        read, Acceptance.DELETING, warning("metadata.deletionTimestamp", at, problem)
    )
    return True


def deciding_policy(
    reads: Sequence[ParsedPolicy], ledger: VerdictCollector
) -> tuple[ParsedPolicy, ClusterWidePolicy] | None:
    """The oldest policy for the whole cluster; the others are told that they are ignored."""
    whole: list[tuple[ParsedPolicy, ClusterWidePolicy]] = [
        *of_kind(reads, CLUSTER_POLICY.name, ClusterPolicy),
        *of_kind(reads, GPU_CLUSTER_POLICY.name, GpuClusterPolicy),
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
        found = warning("metadata.name", quote_value(name), problem, remedy)
        ledger.set_acceptance(read, Acceptance.IGNORED, found)
    return whole[0] if whole else None


def gpu_cluster_conflicts(
    read: ParsedPolicy, gpu_clusters: Sequence[str], ledger: VerdictCollector
) -> tuple[Finding, ...]:
    """Objects of a GPU Operator that work on the same nodes."""
    found = tuple(
        Finding(
            field="metadata.name",
            value=quote_value(read.policy.metadata.name if read.policy else ""),
            problem="is not followed",
            quoted=(
                f'conflicting GPUCluster resource "{name}" detected;'
                f" {read.kind} and GPUCluster cannot co-exist"
            ),
            remedy="delete one of the two",
        )
        for name in gpu_clusters
    )
    if found:
        ledger.set_acceptance(read, Acceptance.CONFLICTING, *found)
    return found


def disable_drivers(
    drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]],
    read: ParsedPolicy,
    cluster: ClusterWidePolicy,
    ledger: VerdictCollector,
) -> None:
    """Drivers for which the policy of the whole cluster does not ask."""
    because = quoted = ""
    if isinstance(cluster, ClusterPolicy):
        quoted = "useNvidiaDriverCRD is not enabled in ClusterPolicy"
        remedy = "set spec.driver.useNvidiaDriverCRD of the ClusterPolicy to true, or delete it"
    else:
        because = f': {read.kind} "{cluster.metadata.name}" names the driver'
        remedy = f'delete this one, or {read.kind} "{cluster.metadata.name}"'
    for one, driver in drivers:
        name = quote_value(driver.metadata.name)
        found = warning("metadata.name", name, f"is not asked{because}", remedy, quoted)
        ledger.set_acceptance(one, Acceptance.DISABLED, found)


def report_unrequested_drivers(
    drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]], ledger: VerdictCollector
) -> None:
    """Drivers while there is no policy for the whole cluster."""
    for read, driver in drivers:
        found = Finding(
            field="metadata.name",
            value=quote_value(driver.metadata.name),
            problem="is not followed: no ClusterPolicy asks for NVIDIADrivers",
            remedy="make one with spec.driver.useNvidiaDriverCRD true, or delete this",
        )
        ledger.add_findings(read, found)


def warning(field: str, value: str, problem: str, remedy: str = "", quoted: str = "") -> Finding:
    """Something that will not happen."""
    return Finding(
        field=field,
        value=value,
        problem=problem,
        quoted=quoted,
        remedy=remedy,
        severity=Severity.WARNING,
    )
