"""The views of a stage, as a scheduler would see it, and their freshness.

Each part of a view (the Node, the pods, the agents' reports) can be frozen while the others go on.
"""

from collections.abc import Callable

import msgspec

from libs.forecast.stage.state import SOURCES, StageState
from libs.forecast.stage.view_parts import Part, memory_part, node_part, pods_part, reports_part
from libs.rollout.views.fleet import Instant, SourceState, Visibility
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, RolloutView

NODES, PODS, REPORTS, ROLLOUTS = "nodes", "pods", "reports", "rollouts"


def node_view(state: StageState, name: str) -> NodeView | None:
    """Return the view; None: the Node is not visible."""
    content = _part(state, NODES, name, node_part)
    if content is None:
        return None
    pods = _part(state, PODS, name, pods_part) or {}
    reports = _part(state, REPORTS, name, reports_part) or {}
    memory = state.memory.get(name)
    own: Part = memory_part(state, name, memory, pods.get("pods", ())) if memory else {}
    return NodeView(**content, **pods, **reports, **own)


def with_memory(state: StageState, view: NodeView) -> NodeView:
    """Return the view with the scheduler's memory updated."""
    memory = state.memory[view.name]
    return msgspec.structs.replace(view, last_wait=memory.waiting, write_pending=memory.writing > 0)


def _part(
    state: StageState, part: str, name: str, make: Callable[[StageState, str], Part | None]
) -> Part | None:
    if part in state.frozen:
        return state.frozen_parts[part].get(name)
    return make(state, name)


def freeze(state: StageState, part: str) -> None:
    """Keep showing that part as it is now."""
    if part in state.frozen:
        return
    if part == ROLLOUTS:
        state.frozen_parts[part] = {key: rollout_view(state, key) for key in state.pools}
    else:
        make = {NODES: node_part, PODS: pods_part, REPORTS: reports_part}[part]
        contents = ((name, make(state, name)) for name in state.machines)
        state.frozen_parts[part] = {
            name: content for name, content in contents if content is not None
        }
    state.frozen.add(part)
    if part in SOURCES:
        state.sources[part] = SourceState(proved=state.now, revision=str(state.revision))


def unfreeze(state: StageState, part: str) -> None:
    if part in state.frozen:
        state.frozen.discard(part)
        state.frozen_parts.pop(part, None)
        state.sources.pop(part, None)
        state.touch_all(state.machines)
        for key in state.pools:
            state.touch_pool(key)


def refresh_node(state: StageState, name: str) -> None:
    """Show a frozen Node as the answer to a write to it does, or to the read after a conflict."""
    if NODES in state.frozen and (content := node_part(state, name)) is not None:
        state.frozen_parts[NODES] = {**state.frozen_parts[NODES], name: content}
        state.stale_views.add(name)


def refresh_rollout(state: StageState, key: str) -> None:
    """Show a frozen Rollout as the answer to a write to it does."""
    if ROLLOUTS in state.frozen:
        contents = {**state.frozen_parts[ROLLOUTS], key: rollout_view(state, key)}
        state.frozen_parts[ROLLOUTS] = contents
        state.stale_pool_views.add(key)


def refresh_slot(state: StageState, name: str, part: str) -> None:
    """Show a frozen slot as the answer to a write to it does."""
    contents = state.frozen_parts.get(REPORTS, {}).get(name)
    if contents and part in contents["components"]:
        slot = state.slots[name, part].command
        parts = {**contents["components"]}
        parts[part] = msgspec.structs.replace(parts[part], slot=slot)
        content = {**contents, "components": parts}
        state.frozen_parts[REPORTS] = {**state.frozen_parts[REPORTS], name: content}


def mute(state: StageState, source: str) -> None:
    """Let the source be current without showing it."""
    if source not in state.sources:
        state.sources[source] = SourceState(proved=state.now, revision=str(state.revision))


# Pools.


def pool_view(state: StageState, key: str) -> PoolView:
    """Return the current policy with its Rollout as visible."""
    pool = state.pools[key]
    if ROLLOUTS in state.frozen:
        rollout = state.frozen_parts[ROLLOUTS].get(key)
        if rollout is not None:
            writing = key in state.writing_rollouts
            rollout = msgspec.structs.replace(rollout, write_pending=writing)
    else:
        rollout = rollout_view(state, key)
    return PoolView(
        key=key,
        uid=pool.uid,
        target=pool.target,
        method=pool.method,
        builds=pool.builds,
        upgrade=pool.upgrade,
        strategy=pool.strategy,
        held=pool.held,
        gone=pool.gone,
        rollout=rollout,
    )


def rollout_view(state: StageState, key: str) -> RolloutView | None:
    rollout = state.pools[key].rollout
    if rollout is None:
        return None
    return RolloutView(
        uid=rollout.uid,
        revision=str(rollout.revision),
        spec=rollout.spec,
        generation=rollout.generation,
        status=rollout.status,
        has_finalizer=rollout.finalized,
        write_pending=key in state.writing_rollouts,
    )


def instant(state: StageState, epoch: int) -> Instant:
    """Return the present moment with the freshness of all sources."""
    current = SourceState(proved=state.now, revision=str(state.revision))
    sources = {name: state.sources.get(name, current) for name in SOURCES}
    for name in state.sources.keys() - state.frozen:
        sources[name] = msgspec.structs.replace(sources[name], revision=current.revision)
    visibility = Visibility(
        sources=sources,
        bus_down_since=state.bus_down_since,
        bus_outages=state.bus_outages,
        foreign_operator=state.foreign_operator,
    )
    return Instant(at=state.now, epoch=epoch, visibility=visibility)
