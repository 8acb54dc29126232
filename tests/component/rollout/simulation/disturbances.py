"""What people do and what breaks, each by a word: all rows of docs/states.md#people, and faults.

An act that has nothing to act on does nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import msgspec
from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.contracts.rollout import Brake
from libs.forecast.stage import StageFaults, StageNodeSpec, Tenant, UserActions, effects
from libs.forecast.stage.state import StageState
from tests.component.rollout.simulation import policies


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens at a time, counted from the start of the story."""

    at: float
    what: str
    node: str = ""
    pool: str = ""
    value: str = ""
    seconds: float = 0.0
    """For how long, of what ends again."""

    def __str__(self) -> str:
        said = " ".join(filter(None, (self.what, self.node, self.pool, self.value)))
        return f"{self.at:8.1f} {said}" + (f" for {self.seconds:g} s" if self.seconds else "")


class DisturbanceContext(msgspec.Struct, frozen=True):
    """Whoever acts."""

    state: StageState
    people: UserActions
    faults: StageFaults

    @classmethod
    def on(cls, state: StageState) -> "DisturbanceContext":
        """Those that act there."""
        return cls(state, UserActions(state), StageFaults(state))

    def later(self, seconds: float, do: Callable[["DisturbanceContext"], None]) -> None:
        """The end of what lasts; on a copy of the stage it is the copy where it ends."""

        def ends(state: StageState) -> None:
            do(DisturbanceContext.on(state))

        self.state.call_after(seconds, ends)


Do = Callable[[DisturbanceContext, Disturbance], None]
_OF_NODES: dict[str, tuple[float, Do]] = {}
_OF_POOLS: dict[str, tuple[float, Do]] = {}
_LASTING = (1.0, 10.0, 45.0, 120.0, 400.0, 1500.0)


def _of_node(weight: float) -> Callable[[Do], Do]:
    def register(do: Do) -> Do:
        _OF_NODES[do.__name__.strip("_")] = (weight, do)
        return do

    return register


def _of_pool(weight: float) -> Callable[[Do], Do]:
    def register(do: Do) -> Do:
        _OF_POOLS[do.__name__.strip("_")] = (weight, do)
        return do

    return register


def random_disturbance(
    random: Random, nodes: Sequence[str], pools: Sequence[str], at: float
) -> Disturbance:
    """Any of them."""
    table = [(name, weight) for name, (weight, _) in (_OF_NODES | _OF_POOLS).items()]
    what = random.choices([name for name, _ in table], [weight for _, weight in table])[0]
    return Disturbance(
        at=at,
        what=what,
        node=random.choice(nodes) if what in _OF_NODES else "",
        pool=random.choice(pools),
        value=random.choice(VALUES.get(what, ("",))),
        seconds=random.choice(_LASTING),
    )


def perform(hands: DisturbanceContext, act: Disturbance) -> None:
    """It happens."""
    _, do = (_OF_NODES | _OF_POOLS)[act.what]
    if act.node and act.node not in hands.state.machines:
        return
    do(hands, act)


# People, on nodes.


@_of_node(2)
def _cordons(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.cordon(act.node)


@_of_node(2)
def _uncordons(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.uncordon(act.node)


@_of_node(3)
def _sets_state(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_state(act.node, act.value or None)


@_of_node(2)
def _sets_driver_label(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_driver_label(act.node, act.value or None)


@_of_node(1)
def _sets_record(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_record(act.node, act.value or None)


@_of_node(1)
def _sets_lease(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_lease(act.node, act.value or None)


@_of_node(2)
def _requests(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_request(act.node, act.value)


@_of_node(1)
def _asks_as_before(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_operator_request(act.node)


@_of_node(1)
def _asks_for_safe_load(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_safe_load(act.node)


@_of_node(1)
def _skips(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_skip(act.node, True)
    hands.later(act.seconds, lambda later: later.people.set_skip(act.node, False))


@_of_node(0.5)
def _keeps_cordoned(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_keep_cordoned(act.node)


@_of_node(2)
def _deletes_driver_pod(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.delete_driver_pod(act.node, force=act.value == "force")


@_of_node(1.5)
def _deletes_node(hands: DisturbanceContext, act: Disturbance) -> None:
    pool = hands.state.nodes[act.node].pool if act.node in hands.state.nodes else ""
    hands.people.delete_node(act.node)
    hands.later(act.seconds, lambda later: later.people.register(act.node, pool or act.pool))


@_of_node(0.7)
def _node_leaves_for_good(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.delete_node(act.node)
    hands.faults.power_off(act.node)


@_of_node(1)
def _moves(hands: DisturbanceContext, act: Disturbance) -> None:
    pools = [*hands.state.pools, ""]
    there = hands.state.nodes.get(act.node)
    if there is not None:
        to = pools[(pools.index(there.pool) + 1) % len(pools)]
        before = there.pool
        hands.people.move_to_pool(act.node, to)
        hands.later(act.seconds, lambda later: later.people.move_to_pool(act.node, before))


@_of_node(1)
def _excludes(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.exclude(act.node, True)
    hands.later(act.seconds, lambda later: later.people.exclude(act.node, False))


@_of_node(1)
def _brings_work(hands: DisturbanceContext, act: Disturbance) -> None:
    name = f"extra-{len(hands.state.machines[act.node].tenants)}"
    hands.people.add_tenant(act.node, Tenant(name=name, gpus=1))


@_of_node(1)
def _logs_in(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_host_processes(act.node, 1)
    hands.later(act.seconds, lambda later: later.people.set_host_processes(act.node, 0))


# What breaks on nodes.


@_of_node(3)
def _crashes(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.crash_driver(act.node)


@_of_node(3)
def _reboots(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.reboot(act.node, kernel=act.value)


@_of_node(0.5)
def _reboots_as_other_variant(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.reboot(act.node, variant=act.value)


@_of_node(1)
def _loses_power(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.power_off(act.node)
    hands.later(act.seconds, lambda later: later.faults.power_on(act.node))


@_of_node(2)
def _kubelet_is_cut_off(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.disconnect_kubelet(act.node, act.seconds)


@_of_node(1)
def _agents_are_cut_off(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.disconnect_agents(act.node)
    hands.later(act.seconds, lambda later: later.faults.reconnect_agents(act.node))


@_of_node(2)
def _agent_dies(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.stop_agent(act.node, act.value)
    hands.later(act.seconds, lambda later: later.faults.restart_agent(act.node, act.value))


@_of_node(1)
def _agent_hangs(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.stop_agent(act.node, act.value, hung=True)
    hands.later(act.seconds, lambda later: later.faults.restart_agent(act.node, act.value))


@_of_node(2)
def _agent_restarts(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.restart_agent(act.node, act.value)


@_of_node(1.5)
def _agent_forgets(hands: DisturbanceContext, act: Disturbance) -> None:
    machine = hands.state.machines[act.node]
    hands.faults.restart_agent(act.node, act.value, loses_journal=machine.up)


@_of_node(1)
def _misses_pokes(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.miss_pokes(act.node, act.value)
    hands.later(act.seconds, lambda later: later.faults.miss_pokes(act.node))


# People and faults, on pools and on everything.


@_of_pool(2)
def _brakes(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_brake(act.pool, Brake(act.value))
    hands.later(act.seconds, lambda later: later.people.set_brake(act.pool, Brake.NONE))


@_of_pool(2)
def _releases(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.set_release(act.pool, hands.state.pools[act.pool].target, 1)


@_of_pool(4)
def _wants(hands: DisturbanceContext, act: Disturbance) -> None:
    there = hands.state.pools[act.pool]
    known = act.value in there.builds
    builds = None if known else policies.builds_of(act.pool, act.value, there.method)
    hands.people.set_target(act.pool, act.value, builds)


def _wish(act: Disturbance, hands: DisturbanceContext) -> None:
    _wants(hands, act)


@_of_pool(1)
def _flaps(hands: DisturbanceContext, act: Disturbance) -> None:
    """A to B to C to B, while nodes are on their way."""
    for number, target in enumerate(("C", "A", "B", act.value)):
        wish = replace(act, what="wants", value=target)
        hands.later(number * act.seconds / 4, partial(_wish, wish))


@_of_pool(1)
def _switches_off(hands: DisturbanceContext, act: Disturbance) -> None:
    upgrade = hands.state.pools[act.pool].upgrade
    hands.people.edit_policy(act.pool, upgrade=replace(upgrade, auto_upgrade=False))
    on = replace(upgrade, auto_upgrade=True)
    hands.later(act.seconds, lambda later: later.people.edit_policy(act.pool, upgrade=on))


@_of_pool(1)
def _edits_policy(hands: DisturbanceContext, act: Disturbance) -> None:
    random = Random(f"{act.at} {act.pool}")
    hands.people.edit_policy(act.pool, upgrade=policies.upgrade_policy(random))


@_of_pool(1)
def _deletes_policy(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.edit_policy(act.pool, gone=True)
    hands.later(act.seconds, lambda later: later.people.edit_policy(act.pool, gone=False))


@_of_pool(1)
def _loses_rollout(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.people.delete_rollout(act.pool)


@_of_pool(1)
def _joins(hands: DisturbanceContext, act: Disturbance) -> None:
    name = f"m{round(act.at)}"
    if name not in hands.state.machines:
        hands.people.add_node(StageNodeSpec(name=name, pool=act.pool, variant="u24", kernel="6.8"))


@_of_pool(4)
def _another_leads(hands: DisturbanceContext, act: Disturbance) -> None:
    effects.elect(hands.state)


@_of_pool(2)
def _bus_is_away(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.set_bus_up(False)
    hands.later(act.seconds, lambda later: later.faults.set_bus_up(True))


@_of_pool(2)
def _view_stands_still(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.freeze(act.value)
    hands.later(act.seconds, lambda later: later.faults.unfreeze(act.value))


@_of_pool(2)
def _source_is_quiet(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.mute_source(act.value)


@_of_pool(0.7)
def _operator_comes(hands: DisturbanceContext, act: Disturbance) -> None:
    hands.faults.foreign_operator("gpu-operator-7c9")
    hands.later(act.seconds, lambda later: later.faults.foreign_operator(""))


_PARTS = ("driver", "driver", "driver", "validator", "plugin", "discovery", "telemetry")
VALUES: dict[str, tuple[str, ...]] = {
    "sets_state": (
        "",
        *(3 * (UpgradeState.UPGRADE_REQUIRED.value,)),
        UpgradeState.UPGRADE_DONE.value,
        UpgradeState.UPGRADE_FAILED.value,
        UpgradeState.POD_RESTART_REQUIRED.value,
        "nonsense",
    ),
    "sets_driver_label": ("", "p-A-u24", "p-B-u24", "no-such-label"),
    "sets_record": ("", "garbled"),
    "sets_lease": ("", "garbled"),
    "requests": ("adopt", "forget", "without-preflight", "nonsense"),
    "deletes_driver_pod": ("", "", "force"),
    "reboots": ("", "", "6.9"),
    "reboots_as_other_variant": ("u24", "u22"),
    "agent_dies": _PARTS,
    "agent_hangs": _PARTS,
    "agent_restarts": _PARTS,
    "agent_forgets": _PARTS,
    "misses_pokes": _PARTS,
    "brakes": ("Pause", "Freeze"),
    "wants": ("A", "B", "C", "C"),
    "flaps": ("A", "B", "C"),
    "view_stands_still": ("nodes", "pods", "reports", "rollouts"),
    "source_is_quiet": ("nodes", "pods", "rollouts", "policies", "daemonsets"),
}
