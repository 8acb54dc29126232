"""What a DaemonSet's status says of its pods. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.testing.cluster.daemonsets.plan import HASH_LABEL, DaemonTemplate, PodsByNode, sort_key
from libs.testing.cluster.daemonsets.rolling_update import available
from libs.testing.cluster.views import DaemonSet, DaemonSetStatus, Node


def status(
    daemon_set: DaemonSet,
    nodes: Mapping[str, Node],
    pods: PodsByNode,
    *,
    revision: str,
    now: float,
) -> DaemonSetStatus:
    """Counted over the nodes as they are now."""
    wanted = DaemonTemplate(daemon_set)
    desired = current = misscheduled = ready = updated = in_use = 0
    for name, node in nodes.items():
        here = sorted(pods.get(name, ()), key=sort_key)
        if not wanted.eligibility(node).should_run:
            misscheduled += bool(here)
            continue
        desired += 1
        if not here:
            continue
        pod = here[0]
        current += 1
        ready += pod.ready
        in_use += available(pod, min_ready=daemon_set.spec.min_ready_seconds, now=now)
        updated += pod.metadata.labels.get(HASH_LABEL) == revision
    return DaemonSetStatus(
        observed_generation=daemon_set.metadata.generation,
        desired_number_scheduled=desired,
        current_number_scheduled=current,
        number_misscheduled=misscheduled,
        number_ready=ready,
        updated_number_scheduled=updated,
        number_available=in_use,
        number_unavailable=desired - in_use,
        collision_count=daemon_set.status.collision_count,
    )


def as_patch(wanted: DaemonSetStatus) -> dict[str, Any]:
    """What is not always written is left out at zero, as the API does."""
    counts: dict[str, int] = msgspec.to_builtins(wanted)
    always = (
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    )
    return {key: value if value or key in always else None for key, value in counts.items()}
