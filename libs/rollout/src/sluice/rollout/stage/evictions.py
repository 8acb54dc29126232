"""Evictions: pods are asked to leave, again and again, until they do or nobody wants it any more.

Must not know what their budgets say: that is in `works`.
"""

from sluice.rollout.decision import EvictPods
from sluice.rollout.stage import works
from sluice.rollout.stage.objects import Leaves
from sluice.rollout.stage.state import State


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
    """A pod is asked to leave, again and again until it does or nobody wants it any more."""
    known, machine = state.known.get(name), state.machines.get(name)
    leaves = known.leaves if known is not None else None
    if leaves is None or machine is None or leader != state.leader or uid not in leaves.pods:
        return
    if leaves.by_force != by_force:
        return
    work = machine.works.get(uid)
    if work is None or not work.in_api:
        _forget(state, name, uid)
        return
    if by_force:
        works.delete(state, machine, work)
        _forget(state, name, uid)
        return
    refused = works.evict(state, machine, work)
    if leaves.refused.get(uid, "") != refused:
        leaves.refused = {**leaves.refused, uid: refused}
        state.touch(name)
    state.after(state.pace.retry, asked, name, uid, leader, by_force)


def _forget(state: State, name: str, uid: str) -> None:
    """It is gone."""
    known = state.known.get(name)
    if known is None or known.leaves is None or uid not in known.leaves.pods:
        return
    left = {each: since for each, since in known.leaves.pods.items() if each != uid}
    known.leaves.pods = left
    if not left:
        known.leaves = None
    state.touch(name)
