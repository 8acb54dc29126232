"""Which pods of an older template a rolling update may delete now. Pure."""

from collections.abc import Mapping, Sequence

from libs.kube.times import parse_time
from libs.testing.cluster.daemonsets.plan import HASH_LABEL, DaemonTemplate, PodsByNode
from libs.testing.cluster.views import DaemonSet, Node, Pod


def resolve_percentage(value: int | str, total: int) -> int:
    """A number, or a percentage of the total, rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.removesuffix("%")) * total // 100)


def available(pod: Pod, *, min_ready: int, now: float) -> bool:
    """Ready, and for long enough."""
    found = pod.condition("Ready")
    if found is None or found.status != "True":
        return False
    since = found.last_transition_time
    return not min_ready or bool(since and parse_time(since) + min_ready <= now)


def replaceable(
    daemon_set: DaemonSet,
    nodes: Mapping[str, Node],
    pods: PodsByNode,
    *,
    revision: str,
    now: float,
) -> list[Pod]:
    """Old ones that do not work anyway, and of the others as many as the limit leaves."""
    spec = daemon_set.spec
    wanted = DaemonTemplate(daemon_set)
    desired = sum(wanted.eligibility(node).should_run for node in nodes.values())
    limit = resolve_percentage(spec.update_strategy.rolling_update.max_unavailable, desired)
    unavailable = 0
    broken: list[Pod] = []
    candidates: list[Pod] = []
    for name, node in nodes.items():
        here = pods.get(name, ())
        if not here and not wanted.eligibility(node).should_run:
            continue
        new, old = _split(here, revision)
        if len(new) > 1 or len(old) > 1 or bool(new) == bool(old):
            unavailable += 1
        elif new:
            unavailable += not available(new[0], min_ready=spec.min_ready_seconds, now=now)
        elif available(old[0], min_ready=spec.min_ready_seconds, now=now):
            candidates.append(old[0])
        else:
            broken.append(old[0])
    return [*broken, *candidates[: max(0, limit - unavailable)]]


def _split(pods: Sequence[Pod], revision: str) -> tuple[list[Pod], list[Pod]]:
    live = [pod for pod in pods if not pod.deleting]
    new = [pod for pod in live if pod.metadata.labels.get(HASH_LABEL) == revision]
    old = [pod for pod in live if pod.metadata.labels.get(HASH_LABEL) != revision]
    return new, old
