"""Pods of people are evicted, so that their budgets are asked; Sluice deletes only its own."""

from collections.abc import Iterable, Iterator

from libs.contracts.journal import Revision, Verb
from tests.component.processes import NAMESPACE

_OURS = f"system:serviceaccount:{NAMESPACE}:"


def deleted_pods(revisions: Iterable[Revision]) -> Iterator[str]:
    """Report each pod of another namespace that a service of Sluice deleted or wrote."""
    for each in revisions:
        is_ours = each.user.startswith(_OURS) and each.namespace != NAMESPACE
        if each.kind == "Pod" and is_ours and each.verb != Verb.EVICT and each.code < 300:
            yield f"{each.user} used {each.verb} on the pod {each.namespace}/{each.name}"
