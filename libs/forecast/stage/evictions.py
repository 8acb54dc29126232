"""Evictions: pods are asked to leave, again and again, until they do or nobody wants it any more.

Must not know what their budgets say: that is in `works`.
"""

from libs.forecast.stage import works
from libs.forecast.stage.objects import Leaves
from libs.forecast.stage.state import State
from libs.rollout.decision import EvictPods


def begin(state: State, name: str, action: EvictPods) -> None:
    """These are to leave, and no others any more."""
    known = state.knows(name)
    before = known.leaves
    since = before.pods if before is not None else {}
    fresh = before is None or before.by_force != action.by_force
    pods = {pod.uid: since.get(pod.uid, state.now) for pod in action.pods}
    refused = before.refused if before is not None else {}
    known.leaves = Leaves(pods=pods, by_force=action.by_force, refused=refused)
    state.touch(name)
    for uid in pods:
        if fresh or uid not in since:
            asked(state, name, uid, state.leader, action.by_force)


def asked(state: State, name: str, uid: str, leader: int, by_force: bool) -> None:
    """A pod is asked to leave, again and again until it does or nobody wants it any more.

    Who is gone counts as asked until that is seen.
    """
    known, machine = state.known.get(name), state.machines.get(name)
    leaves = known.leaves if known is not None else None
    if leaves is None or machine is None or leader != state.leader or uid not in leaves.pods:
        return
    if leaves.by_force != by_force:
        return
    work = machine.works.get(uid)
    if work is None or not work.in_api:
        _refused(state, name, leaves, uid, "")
    elif by_force:
        works.delete(state, machine, work)
    else:
        _refused(state, name, leaves, uid, works.evict(state, machine, work))
        state.after(state.pace.retry, asked, name, uid, leader, by_force)


def under_way(state: State, name: str) -> bool:
    """Whether anybody who is there was asked to leave."""
    known, machine = state.known.get(name), state.machines.get(name)
    leaves = known.leaves if known is not None else None
    return (
        leaves is not None
        and machine is not None
        and not leaves.pods.keys().isdisjoint(machine.works)
    )


def _refused(state: State, name: str, leaves: Leaves, uid: str, why: str) -> None:
    if leaves.refused.get(uid, "") != why:
        leaves.refused = {**leaves.refused, uid: why}
        state.touch(name)
