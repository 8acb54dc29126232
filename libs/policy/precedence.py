"""Decide which of several policy objects takes effect, and report the others.

Only kinds, ages and deletions count here; nodes are assigned in `libs.policy.pools`.
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
    policies: Iterable[ParsedPolicy], kind: str, struct: type[S]
) -> list[tuple[ParsedPolicy, S]]:
    """Return the policies of one kind, in the given order."""
    return [
        (parsed, parsed.policy)
        for parsed in policies
        if parsed.kind == kind and isinstance(parsed.policy, struct)
    ]


def live_policies(
    policies: Iterable[ParsedPolicy], collector: VerdictCollector
) -> list[ParsedPolicy]:
    """Return the policies that are not being deleted, and report those that are."""
    live: list[ParsedPolicy] = []
    for parsed in policies:
        if not parsed.policy or not parsed.policy.metadata.deleting:
            live.append(parsed)
            continue
        problem = "is set: the object is being deleted and no longer takes effect"
        deleted_at = parsed.policy.metadata.deletion_timestamp
        found = warning("metadata.deletionTimestamp", deleted_at, problem)
        collector.set_acceptance(parsed, Acceptance.DELETING, found)
    return live


def deciding_policy(
    policies: Sequence[ParsedPolicy], collector: VerdictCollector
) -> tuple[ParsedPolicy, ClusterWidePolicy] | None:
    """Return the oldest cluster-wide policy, and report the others as ignored."""
    candidates: list[tuple[ParsedPolicy, ClusterWidePolicy]] = [
        *of_kind(policies, CLUSTER_POLICY.name, ClusterPolicy),
        *of_kind(policies, GPU_CLUSTER_POLICY.name, GpuClusterPolicy),
    ]
    candidates.sort(key=lambda candidate: (*candidate[1].metadata.age, candidate[0].kind))
    for parsed, policy in candidates[1:]:
        first, oldest = candidates[0]
        name = policy.metadata.name
        problem = (
            f'is ignored: {first.kind} "{oldest.metadata.name}" is older, and only one'
            " cluster-wide policy takes effect"
        )
        remedy = f'delete this one, or {first.kind} "{oldest.metadata.name}"'
        found = warning("metadata.name", quote_value(name), problem, remedy)
        collector.set_acceptance(parsed, Acceptance.IGNORED, found)
    return candidates[0] if candidates else None


def gpu_cluster_conflicts(
    parsed: ParsedPolicy, gpu_clusters: Sequence[str], collector: VerdictCollector
) -> tuple[Finding, ...]:
    """Report GPUCluster objects, whose GPU Operator would manage the same nodes."""
    found = tuple(
        Finding(
            field="metadata.name",
            value=quote_value(parsed.policy.metadata.name if parsed.policy else ""),
            problem="does not take effect",
            quoted=(
                f'conflicting GPUCluster resource "{name}" detected;'
                f" {parsed.kind} and GPUCluster cannot co-exist"
            ),
            remedy="delete one of the two",
        )
        for name in gpu_clusters
    )
    if found:
        collector.set_acceptance(parsed, Acceptance.CONFLICTING, *found)
    return found


def disable_drivers(
    drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]],
    parsed: ParsedPolicy,
    cluster: ClusterWidePolicy,
    collector: VerdictCollector,
) -> None:
    """Report NVIDIADrivers that the cluster-wide policy makes ineffective."""
    because = quoted = ""
    if isinstance(cluster, ClusterPolicy):
        quoted = "useNvidiaDriverCRD is not enabled in ClusterPolicy"
        remedy = "set spec.driver.useNvidiaDriverCRD of the ClusterPolicy to true, or delete it"
    else:
        because = f': {parsed.kind} "{cluster.metadata.name}" determines the driver'
        remedy = f'delete this one, or {parsed.kind} "{cluster.metadata.name}"'
    for one, driver in drivers:
        name = quote_value(driver.metadata.name)
        found = warning("metadata.name", name, f"is not used{because}", remedy, quoted)
        collector.set_acceptance(one, Acceptance.DISABLED, found)


def report_unrequested_drivers(
    drivers: Sequence[tuple[ParsedPolicy, NvidiaDriver]], collector: VerdictCollector
) -> None:
    """Report NVIDIADrivers while there is no cluster-wide policy."""
    for parsed, driver in drivers:
        found = Finding(
            field="metadata.name",
            value=quote_value(driver.metadata.name),
            problem="does not take effect: no ClusterPolicy enables NVIDIADrivers",
            remedy="create one with spec.driver.useNvidiaDriverCRD true, or delete this object",
        )
        collector.add_findings(parsed, found)


def warning(field: str, value: str, problem: str, remedy: str = "", quoted: str = "") -> Finding:
    return Finding(
        field=field,
        value=value,
        problem=problem,
        quoted=quoted,
        remedy=remedy,
        severity=Severity.WARNING,
    )
