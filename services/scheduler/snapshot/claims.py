"""Which pods hold GPUs by resource claims."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from services.scheduler.resources import Pod, ResourceClaim

ClaimOf = Callable[[str], ResourceClaim | None]
"""Returns a claim by `namespace/name`; None: it is not known."""


def claims_gpu(pod: Pod, claim_of: ClaimOf) -> bool | None:
    """Return whether a claim of the pod has a GPU; None: that is not known yet."""
    found = [_has_gpu(key, claim_of) for key in _claim_keys(pod)]
    return any(found) or (None if None in found else False)


def _has_gpu(key: str | None, claim_of: ClaimOf) -> bool | None:
    claim = None if key is None else claim_of(key)
    return None if claim is None else claim.has_gpu


def _claim_keys(pod: Pod) -> Iterator[str | None]:
    """Yield the key of each claim; None: the claim of a template is not made yet."""
    made = {each.name: each for each in pod.status.resource_claim_statuses}
    for claim in pod.spec.resource_claims:
        named = claim if claim.resource_claim_name else made.get(claim.name)
        if named is None:
            yield None
        elif named.resource_claim_name:
            yield f"{pod.metadata.namespace}/{named.resource_claim_name}"


class ClaimUsers:
    """The nodes with pods that name a claim."""

    def __init__(self) -> None:
        self._nodes: defaultdict[str, set[str]] = defaultdict(set)
        self._keys: dict[str, frozenset[str]] = {}

    def update(self, node: str, pods: Iterable[Pod]) -> None:
        """Replace the pods of a node."""
        before = self._keys.pop(node, frozenset())
        after = frozenset(key for pod in pods for key in _claim_keys(pod) if key is not None)
        if after:
            self._keys[node] = after
        for key in before - after:
            self._nodes[key].discard(node)
            if not self._nodes[key]:
                del self._nodes[key]
        for key in after:
            self._nodes[key].add(node)

    def of(self, key: str) -> frozenset[str]:
        return frozenset(self._nodes.get(key, ()))
