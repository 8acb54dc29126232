"""What keys write to Kubernetes, and what they ask the scheduler, with the user's rights."""

from collections.abc import Callable

import msgspec

from libs.contracts.rollout import Brake
from libs.ctl import brakes
from libs.ctl.answers import NodeAnswer
from libs.ctl.brakes import Signature, halted_targets
from libs.ctl.cluster import Cluster
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.output import view_lines
from libs.ctl.views.node import node_view
from libs.ctl.watch.keys import Action
from libs.ctl.watch.screen import Screen, Watched, selected_index
from libs.ctl.writes import as_confirmed
from libs.fleet.pools import ROLLOUTS, Rollout
from libs.fleet.state import FleetState


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a Rollout, as it was judged when its key was pressed."""

    pool: str
    decide: Callable[[Rollout], Edit]
    planned: Edit


def planned_write(
    action: Action, watched: Watched, screen: Screen, state: FleetState, *, person: str
) -> Write:
    """Return what a key writes; fail with the reason why it cannot be written."""
    pool = _chosen_pool(watched, screen)
    rollout = state.rollouts[pool]
    by = Signature(user=person)
    is_release = action is Action.RELEASE
    decide = _release(rollout, state, by) if is_release else _brake(action, by)
    return Write(pool=pool, decide=decide, planned=decide(rollout))


def _chosen_pool(watched: Watched, screen: Screen) -> str:
    """Return the only pool that is shown, or the pool of the selected node."""
    names = [pool.name for pool in watched.pools]
    if not names:
        raise Failure(ExitCode.NOT_FOUND, "there is no pool yet")
    if len(names) == 1:
        return names[0]
    pool = ""
    if watched.nodes:
        pool = watched.nodes[selected_index(watched.nodes, screen)].pool
    if pool not in names:
        raise Failure(ExitCode.WRONG_ARGUMENTS, "select a node of the pool that you mean")
    return pool


def _brake(action: Action, by: Signature) -> Callable[[Rollout], Edit]:
    brake = Brake.PAUSE if action is Action.PAUSE else Brake.NONE

    def decide(seen: Rollout) -> Edit:
        return brakes.set_brake(seen.metadata, seen.spec, seen.status, brake, by=by)

    return decide


def _release(rollout: Rollout, state: FleetState, by: Signature) -> Callable[[Rollout], Edit]:
    """Return what accepts the failures of the halted driver.

    Of several that are halted, it is the wanted one; where that is not clear, a key cannot say
    which is meant.
    """
    halted = halted_targets([rollout], state.versions)
    wanted = [each for each in halted if each.target == rollout.status.target] or halted
    pool = rollout.metadata.name
    if not wanted:
        raise Failure(ExitCode.REFUSED, f"{pool} is not halted: there is nothing to release")
    (chosen, *others) = wanted
    if others:
        raise Failure(
            ExitCode.REFUSED, f"several drivers of {pool} are halted: use sluice upgrade release"
        )

    def decide(seen: Rollout) -> Edit:
        failures = len(chosen.record.harmed)
        return brakes.release(pool, seen.status, chosen.target, chosen.version, failures, by=by)

    return decide


async def carry_out(cluster: Cluster, write: Write) -> str:
    """Write what was confirmed, and return what was done in a sentence."""
    decide = as_confirmed(write.decide, write.planned, yes=False)
    return (await cluster.write(ROLLOUTS, write.pool, decide)).done


async def ask_why(access: Access, node: str) -> NodeAnswer:
    """Return the answer of `sluice why`; fail for a node that Sluice does not look after."""
    from libs.ctl.collect.node import gather_why

    answer = await gather_why(access, node)
    if not isinstance(answer, NodeAnswer):
        raise Failure(
            ExitCode.NOT_FOUND,
            f"a GPU Operator looks after {node}, not Sluice: `sluice why {node}` explains it",
        )
    return answer


def why_lines(answer: NodeAnswer, *, now: float) -> tuple[str, ...]:
    """Return the answer of `sluice why` as lines, which are folded where they are shown."""
    return tuple(view_lines(node_view(answer, now=now), width=10_000))
