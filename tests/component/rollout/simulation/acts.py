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
from libs.forecast.stage import Faults, NodePlan, People, Tenant, effects
from libs.forecast.stage.state import State
from tests.component.rollout.simulation import policies


class Act(msgspec.Struct, frozen=True, kw_only=True):
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


class Hands(msgspec.Struct, frozen=True):
    """Whoever acts."""

    state: State
    people: People
    faults: Faults

    @classmethod
    def on(cls, state: State) -> "Hands":
        """Those that act there."""
        return cls(state, People(state), Faults(state))

    def later(self, seconds: float, do: Callable[["Hands"], None]) -> None:
        """The end of what lasts; on a copy of the stage it is the copy where it ends."""

        def ends(state: State) -> None:
            do(Hands.on(state))

        self.state.after(seconds, ends)


Do = Callable[[Hands, Act], None]
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


def drawn(random: Random, nodes: Sequence[str], pools: Sequence[str], at: float) -> Act:
    """Any of them."""
    table = [(name, weight) for name, (weight, _) in (_OF_NODES | _OF_POOLS).items()]
    what = random.choices([name for name, _ in table], [weight for _, weight in table])[0]
    return Act(
        at=at,
        what=what,
        node=random.choice(nodes) if what in _OF_NODES else "",
        pool=random.choice(pools),
        value=random.choice(VALUES.get(what, ("",))),
        seconds=random.choice(_LASTING),
    )


def perform(hands: Hands, act: Act) -> None:
    """It happens."""
    _, do = (_OF_NODES | _OF_POOLS)[act.what]
    if act.node and act.node not in hands.state.machines:
        return
    do(hands, act)


# People, on nodes.


@_of_node(2)
def _cordons(hands: Hands, act: Act) -> None:
    hands.people.cordon(act.node)


@_of_node(2)
def _uncordons(hands: Hands, act: Act) -> None:
    hands.people.uncordon(act.node)


@_of_node(3)
def _sets_state(hands: Hands, act: Act) -> None:
    hands.people.set_state(act.node, act.value or None)


@_of_node(2)
def _sets_driver_label(hands: Hands, act: Act) -> None:
    hands.people.set_driver_label(act.node, act.value or None)


@_of_node(1)
def _sets_record(hands: Hands, act: Act) -> None:
    hands.people.set_record(act.node, act.value or None)


@_of_node(1)
def _sets_lease(hands: Hands, act: Act) -> None:
    hands.people.set_lease(act.node, act.value or None)


@_of_node(2)
def _requests(hands: Hands, act: Act) -> None:
    hands.people.request(act.node, act.value)


@_of_node(1)
def _asks_as_before(hands: Hands, act: Act) -> None:
    hands.people.ask_as_before(act.node)


@_of_node(1)
def _asks_for_safe_load(hands: Hands, act: Act) -> None:
    hands.people.ask_for_safe_load(act.node)


@_of_node(1)
def _skips(hands: Hands, act: Act) -> None:
    hands.people.skip(act.node, True)
    hands.later(act.seconds, lambda later: later.people.skip(act.node, False))


@_of_node(0.5)
def _keeps_cordoned(hands: Hands, act: Act) -> None:
    hands.people.keep_cordoned(act.node)


@_of_node(2)
def _deletes_driver_pod(hands: Hands, act: Act) -> None:
    hands.people.delete_driver_pod(act.node, force=act.value == "force")


@_of_node(1.5)
def _deletes_node(hands: Hands, act: Act) -> None:
    pool = hands.state.nodes[act.node].pool if act.node in hands.state.nodes else ""
    hands.people.delete_node(act.node)
    hands.later(act.seconds, lambda later: later.people.register(act.node, pool or act.pool))


@_of_node(0.7)
def _node_leaves_for_good(hands: Hands, act: Act) -> None:
    hands.people.delete_node(act.node)
    hands.faults.power_off(act.node)


@_of_node(1)
def _moves(hands: Hands, act: Act) -> None:
    pools = [*hands.state.pools, ""]
    there = hands.state.nodes.get(act.node)
    if there is not None:
        to = pools[(pools.index(there.pool) + 1) % len(pools)]
        before = there.pool
        hands.people.move_to_pool(act.node, to)
        hands.later(act.seconds, lambda later: later.people.move_to_pool(act.node, before))


@_of_node(1)
def _excludes(hands: Hands, act: Act) -> None:
    hands.people.exclude(act.node, True)
    hands.later(act.seconds, lambda later: later.people.exclude(act.node, False))


@_of_node(1)
def _brings_work(hands: Hands, act: Act) -> None:
    name = f"extra-{len(hands.state.machines[act.node].tenants)}"
    hands.people.bring_work(act.node, Tenant(name=name, gpus=1))


@_of_node(1)
def _logs_in(hands: Hands, act: Act) -> None:
    hands.people.host_processes(act.node, 1)
    hands.later(act.seconds, lambda later: later.people.host_processes(act.node, 0))


# What breaks on nodes.


@_of_node(3)
def _crashes(hands: Hands, act: Act) -> None:
    hands.people.crash_driver(act.node)


@_of_node(3)
def _reboots(hands: Hands, act: Act) -> None:
    hands.faults.reboot(act.node, kernel=act.value)


@_of_node(0.5)
def _reboots_as_other_variant(hands: Hands, act: Act) -> None:
    hands.faults.reboot(act.node, variant=act.value)


@_of_node(1)
def _loses_power(hands: Hands, act: Act) -> None:
    hands.faults.power_off(act.node)
    hands.later(act.seconds, lambda later: later.faults.power_on(act.node))


@_of_node(2)
def _kubelet_is_cut_off(hands: Hands, act: Act) -> None:
    hands.faults.cut_kubelet(act.node, act.seconds)


@_of_node(1)
def _agents_are_cut_off(hands: Hands, act: Act) -> None:
    hands.faults.cut_agents(act.node)
    hands.later(act.seconds, lambda later: later.faults.join_agents(act.node))


@_of_node(2)
def _agent_dies(hands: Hands, act: Act) -> None:
    hands.faults.agent_dies(act.node, act.value)
    hands.later(act.seconds, lambda later: later.faults.agent_restarts(act.node, act.value))


@_of_node(1)
def _agent_hangs(hands: Hands, act: Act) -> None:
    hands.faults.agent_dies(act.node, act.value, hung=True)
    hands.later(act.seconds, lambda later: later.faults.agent_restarts(act.node, act.value))


@_of_node(2)
def _agent_restarts(hands: Hands, act: Act) -> None:
    hands.faults.agent_restarts(act.node, act.value)


@_of_node(1.5)
def _agent_forgets(hands: Hands, act: Act) -> None:
    machine = hands.state.machines[act.node]
    hands.faults.agent_restarts(act.node, act.value, forgets=machine.up)


@_of_node(1)
def _misses_pokes(hands: Hands, act: Act) -> None:
    hands.faults.deaf(act.node, act.value)
    hands.later(act.seconds, lambda later: later.faults.deaf(act.node))


# People and faults, on pools and on everything.


@_of_pool(2)
def _brakes(hands: Hands, act: Act) -> None:
    hands.people.brake(act.pool, Brake(act.value))
    hands.later(act.seconds, lambda later: later.people.brake(act.pool, Brake.NONE))


@_of_pool(2)
def _releases(hands: Hands, act: Act) -> None:
    hands.people.release(act.pool, hands.state.pools[act.pool].target, 1)


@_of_pool(4)
def _wants(hands: Hands, act: Act) -> None:
    there = hands.state.pools[act.pool]
    known = act.value in there.builds
    builds = None if known else policies.builds_of(act.pool, act.value, there.method)
    hands.people.want(act.pool, act.value, builds)


def _wish(act: Act, hands: Hands) -> None:
    _wants(hands, act)


@_of_pool(1)
def _flaps(hands: Hands, act: Act) -> None:
    """A to B to C to B, while nodes are on their way."""
    for number, target in enumerate(("C", "A", "B", act.value)):
        wish = replace(act, what="wants", value=target)
        hands.later(number * act.seconds / 4, partial(_wish, wish))


@_of_pool(1)
def _switches_off(hands: Hands, act: Act) -> None:
    upgrade = hands.state.pools[act.pool].upgrade
    hands.people.policy(act.pool, upgrade=replace(upgrade, auto_upgrade=False))
    on = replace(upgrade, auto_upgrade=True)
    hands.later(act.seconds, lambda later: later.people.policy(act.pool, upgrade=on))


@_of_pool(1)
def _edits_policy(hands: Hands, act: Act) -> None:
    random = Random(f"{act.at} {act.pool}")
    hands.people.policy(act.pool, upgrade=policies.upgrade_policy(random))


@_of_pool(1)
def _deletes_policy(hands: Hands, act: Act) -> None:
    hands.people.policy(act.pool, gone=True)
    hands.later(act.seconds, lambda later: later.people.policy(act.pool, gone=False))


@_of_pool(1)
def _loses_rollout(hands: Hands, act: Act) -> None:
    hands.people.lose_rollout(act.pool)


@_of_pool(1)
def _joins(hands: Hands, act: Act) -> None:
    name = f"m{round(act.at)}"
    if name not in hands.state.machines:
        hands.people.join(NodePlan(name=name, pool=act.pool, variant="u24", kernel="6.8"))


@_of_pool(4)
def _another_leads(hands: Hands, act: Act) -> None:
    effects.elect(hands.state)


@_of_pool(2)
def _bus_is_away(hands: Hands, act: Act) -> None:
    hands.faults.bus(False)
    hands.later(act.seconds, lambda later: later.faults.bus(True))


@_of_pool(2)
def _view_stands_still(hands: Hands, act: Act) -> None:
    hands.faults.hold(act.value)
    hands.later(act.seconds, lambda later: later.faults.show(act.value))


@_of_pool(2)
def _source_is_quiet(hands: Hands, act: Act) -> None:
    hands.faults.quiet(act.value)


@_of_pool(0.7)
def _operator_comes(hands: Hands, act: Act) -> None:
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
