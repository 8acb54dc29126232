"""What users do and what breaks, each by a name: every row of docs/states.md#people, and faults.

A disturbance without an object to act on has no effect.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import msgspec
from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.contracts.rollout import Brake
from libs.forecast.stage.objects import GpuCure, StageMachine
from libs.forecast.stage.state import StageState
from libs.testing.stage import SimulatedState, StageFaults, StageNodeSpec, Tenant, UserActions
from libs.testing.stage.faults import elect
from tests.component.rollout.simulation import policies


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """A user's act or a fault."""

    at: float
    """Seconds since the start of the scenario."""
    what: str
    """A key of `NODE_DISTURBANCES`, `POOL_DISTURBANCES`, or of the tables below them."""
    node: str = ""
    pool: str = ""
    value: str = ""
    seconds: float = 0.0
    """Duration, if the disturbance ends by itself."""

    def __str__(self) -> str:
        words = " ".join(filter(None, (self.what, self.node, self.pool, self.value)))
        return f"{self.at:8.1f} {words}" + (f" for {self.seconds:g} s" if self.seconds else "")


class DisturbanceContext(msgspec.Struct, frozen=True):
    """The stage, and what can be done to it."""

    state: SimulatedState
    users: UserActions
    faults: StageFaults

    @classmethod
    def of(cls, state: SimulatedState) -> "DisturbanceContext":
        return cls(state, UserActions(state), StageFaults(state))

    def call_after(self, seconds: float, do: Callable[["DisturbanceContext"], None]) -> None:
        """Call `do` later; on a copy of the stage it is called with the copy."""

        def end(state: SimulatedState) -> None:
            do(DisturbanceContext.of(state))

        self.state.call_after(seconds, end)


Perform = Callable[[DisturbanceContext, Disturbance], None]


def perform(context: DisturbanceContext, act: Disturbance) -> None:
    if not act.node or act.node in context.state.machines:
        _ACTIONS[act.what](context, act)


def random_disturbance(
    random: Random, nodes: Sequence[str], pools: Sequence[str], at: float
) -> Disturbance:
    table = [
        (what, weight) for what, (weight, _) in (NODE_DISTURBANCES | POOL_DISTURBANCES).items()
    ]
    what = random.choices([what for what, _ in table], [weight for _, weight in table])[0]
    return Disturbance(
        at=at,
        what=what,
        node=random.choice(nodes) if what in NODE_DISTURBANCES else "",
        pool=random.choice(pools),
        value=random.choice(VALUES.get(what, ("",))),
        seconds=random.choice((1.0, 10.0, 45.0, 120.0, 400.0, 1500.0)),
    )


def _temporary(switch: Callable[[DisturbanceContext, Disturbance, bool], None]) -> Perform:
    """Return a disturbance that is switched on, and off after its seconds."""

    def switch_on(context: DisturbanceContext, act: Disturbance) -> None:
        switch(context, act, True)
        context.call_after(act.seconds, lambda later_context: switch(later_context, act, False))

    return switch_on


def _stop_agent(
    context: DisturbanceContext, act: Disturbance, active: bool, *, hung: bool = False
) -> None:
    if active:
        context.faults.stop_agent(act.node, act.value, hung=hung)
    else:
        context.faults.restart_agent(act.node, act.value)


def _delete_node(context: DisturbanceContext, act: Disturbance) -> None:
    node_pool = context.state.nodes[act.node].view.pool if act.node in context.state.nodes else ""
    context.users.delete_node(act.node)
    context.call_after(
        act.seconds,
        lambda later_context: later_context.users.register(act.node, node_pool or act.pool),
    )


def _remove_node(context: DisturbanceContext, act: Disturbance) -> None:
    context.users.delete_node(act.node)
    context.faults.power_off(act.node)


def _move_to_next_pool(context: DisturbanceContext, act: Disturbance) -> None:
    pools = [*context.state.pools, ""]
    node = context.state.nodes.get(act.node)
    if node is not None:
        pool_before = node.view.pool
        context.users.move_to_pool(act.node, pools[(pools.index(pool_before) + 1) % len(pools)])
        context.call_after(
            act.seconds,
            lambda later_context: later_context.users.move_to_pool(act.node, pool_before),
        )


def _add_tenant(context: DisturbanceContext, act: Disturbance) -> None:
    name = f"extra-{len(context.state.machines[act.node].tenants)}"
    context.users.add_tenant(act.node, Tenant(name=name, gpus=1))


def _lose_agent_journal(context: DisturbanceContext, act: Disturbance) -> None:
    machine = context.state.machines[act.node]
    context.faults.restart_agent(act.node, act.value, loses_journal=machine.up)


def _change_target(context: DisturbanceContext, act: Disturbance) -> None:
    pool = context.state.pools[act.pool]
    known = act.value in pool.builds
    builds = None if known else policies.builds_of(act.pool, act.value, pool.method)
    context.users.set_target(act.pool, act.value, builds)


def _flap_target(context: DisturbanceContext, act: Disturbance) -> None:
    """Want C, A, B and the given target one after another, while nodes are in flight."""
    for number, target in enumerate(("C", "A", "B", act.value)):
        change = replace(act, value=target)
        context.call_after(number * act.seconds / 4, partial(_change_target, act=change))


def _switch_off(context: DisturbanceContext, act: Disturbance) -> None:
    upgrade = context.state.pools[act.pool].upgrade
    context.users.edit_policy(act.pool, upgrade=replace(upgrade, auto_upgrade=False))
    enabled = replace(upgrade, auto_upgrade=True)
    context.call_after(
        act.seconds,
        lambda later_context: later_context.users.edit_policy(act.pool, upgrade=enabled),
    )


def _edit_policy(context: DisturbanceContext, act: Disturbance) -> None:
    random = Random(f"{act.at} {act.pool}")
    context.users.edit_policy(act.pool, upgrade=policies.random_upgrade_policy(random))


def _join_node(context: DisturbanceContext, act: Disturbance) -> None:
    name = f"m{round(act.at)}"
    if name not in context.state.machines:
        context.users.add_node(StageNodeSpec(name=name, pool=act.pool, variant="u24", kernel="6.8"))


def _elect_leader(context: DisturbanceContext, act: Disturbance) -> None:
    """Elect a leader, whose clock differs by `value`, or by what no leader corrects."""
    drawn = Random(f"{act.at}").choice((0.0, *CLOCKS_AHEAD))
    context.state.leader_ahead = float(act.value) if act.value else drawn
    elect(context.state)


def _end_driver_unseen(context: DisturbanceContext, act: Disturbance) -> None:
    """End the driver right after its next passed validation, while the leader is stopped."""
    began_at, handlers = context.state.now, context.state.machine_handlers

    def on_machine_changed(state: StageState, machine: StageMachine) -> None:
        evidence = machine.agents["validator"].published_reports.evidence
        passed = evidence is not None and evidence.passed and evidence.at >= began_at
        if machine.name != act.node or not passed:
            return
        context.state.machine_handlers = handlers
        context.state.paused_until = state.now + act.seconds
        state.log(f"the leader is stopped for {act.seconds} s")
        if act.value == "crash":
            context.users.crash_driver(act.node)
        else:
            context.users.delete_driver_pod(act.node, force=act.value == "force")

    context.state.machine_handlers = (*handlers, on_machine_changed)


# The order and the weights of both tables decide what a seed draws.

NODE_DISTURBANCES: dict[str, tuple[float, Perform]] = {
    # Users.
    "cordon": (2, lambda context, act: context.users.cordon(act.node)),
    "uncordon": (2, lambda context, act: context.users.uncordon(act.node)),
    "set_state": (3, lambda context, act: context.users.set_state(act.node, act.value or None)),
    "set_driver_label": (
        2,
        lambda context, act: context.users.set_driver_label(act.node, act.value or None),
    ),
    "set_record": (1, lambda context, act: context.users.set_record(act.node, act.value or None)),
    "set_lease": (1, lambda context, act: context.users.set_lease(act.node, act.value or None)),
    "set_request": (2, lambda context, act: context.users.set_request(act.node, act.value)),
    "set_operator_request": (1, lambda context, act: context.users.set_operator_request(act.node)),
    "set_safe_load": (1, lambda context, act: context.users.set_safe_load(act.node)),
    "set_skip": (
        1,
        _temporary(lambda context, act, active: context.users.set_skip(act.node, active)),
    ),
    "set_keep_cordoned": (0.5, lambda context, act: context.users.set_keep_cordoned(act.node)),
    "delete_driver_pod": (
        2,
        lambda context, act: context.users.delete_driver_pod(act.node, force=act.value == "force"),
    ),
    "delete_node": (1.5, _delete_node),
    "remove_node": (0.7, _remove_node),
    "move_to_next_pool": (1, _move_to_next_pool),
    "exclude": (
        1,
        _temporary(lambda context, act, active: context.users.exclude(act.node, active)),
    ),
    "add_tenant": (1, _add_tenant),
    "add_host_process": (
        1,
        _temporary(
            lambda context, act, active: context.users.set_host_processes(act.node, int(active))
        ),
    ),
    # Faults.
    "crash_driver": (3, lambda context, act: context.users.crash_driver(act.node)),
    "reboot": (3, lambda context, act: context.faults.reboot(act.node, kernel=act.value)),
    "reboot_as_other_variant": (
        0.5,
        lambda context, act: context.faults.reboot(act.node, variant=act.value),
    ),
    "power_off": (
        1,
        _temporary(
            lambda context, act, active: (
                context.faults.power_off if active else context.faults.power_on
            )(act.node)
        ),
    ),
    "disconnect_kubelet": (
        2,
        lambda context, act: context.faults.disconnect_kubelet(act.node, act.seconds),
    ),
    "disconnect_agents": (
        1,
        _temporary(
            lambda context, act, active: (
                context.faults.disconnect_agents if active else context.faults.reconnect_agents
            )(act.node)
        ),
    ),
    "stop_agent": (2, _temporary(_stop_agent)),
    "hang_agent": (1, _temporary(partial(_stop_agent, hung=True))),
    "restart_agent": (2, lambda context, act: context.faults.restart_agent(act.node, act.value)),
    "lose_agent_journal": (1.5, _lose_agent_journal),
    "miss_pokes": (
        1,
        _temporary(
            lambda context, act, active: context.faults.miss_pokes(
                act.node, *((act.value,) if active else ())
            )
        ),
    ),
}

POOL_DISTURBANCES: dict[str, tuple[float, Perform]] = {
    "set_brake": (
        2,
        _temporary(
            lambda context, act, active: context.users.set_brake(
                act.pool, Brake(act.value) if active else Brake.NONE
            )
        ),
    ),
    "release": (
        2,
        lambda context, act: context.users.set_release(
            act.pool, context.state.pools[act.pool].target, 1
        ),
    ),
    "change_target": (4, _change_target),
    "flap_target": (1, _flap_target),
    "switch_off": (1, _switch_off),
    "edit_policy": (1, _edit_policy),
    "delete_policy": (
        1,
        _temporary(lambda context, act, active: context.users.edit_policy(act.pool, gone=active)),
    ),
    "delete_rollout": (1, lambda context, act: context.users.delete_rollout(act.pool)),
    "join_node": (1, _join_node),
    "elect_leader": (4, _elect_leader),
    "stop_bus": (2, _temporary(lambda context, _, active: context.faults.set_bus_up(not active))),
    "freeze_view": (
        2,
        _temporary(
            lambda context, act, active: (
                context.faults.freeze if active else context.faults.unfreeze
            )(act.value)
        ),
    ),
    "mute_source": (2, lambda context, act: context.faults.mute_source(act.value)),
    "foreign_operator": (
        0.7,
        _temporary(
            lambda context, _, active: context.faults.foreign_operator(
                "gpu-operator-7c9" if active else ""
            )
        ),
    ),
}

UNSEEN_ENDS: dict[str, Perform] = {"end_driver_unseen": _end_driver_unseen}
"""Drawn beside the tables above, so that their seeds stay as they are."""


def _reboot_cut_off(context: DisturbanceContext, act: Disturbance) -> None:
    """Reboot a machine whose agents do not reach the bus, and connect it again later.

    `value`: whether it was cut off for so long that its node failed, and its next kernel; or
    that it boots with the disk of another node, which ran the driver that this one is to have.
    """
    first, _, kernel = act.value.partition(" ")
    context.faults.disconnect_agents(act.node)

    def reboot(later: DisturbanceContext) -> None:
        if first == "moved-disk":
            later.faults.swap_disk(act.node)
        later.faults.reboot(act.node, kernel=kernel)
        later.call_after(REBOOT, lambda last: last.faults.reconnect_agents(act.node))

    if first == "failed":
        context.call_after(SILENCE, reboot)
    else:
        reboot(context)


CLOCKS_AHEAD = (-2.0, -1.0, 1.0, 2.0)
"""Seconds: a leader whose clock differs by more from the API server goes by that."""

REBOOT = 1200.0
"""Seconds in which a machine boots and its driver loads."""
SILENCE = 3600.0
"""Seconds after which an upgrade of a silent node has failed."""
CUT_OFF: dict[str, Perform] = {"reboot_cut_off": _reboot_cut_off}
"""Drawn beside the tables above, so that their seeds stay as they are."""


def _take_lease(context: DisturbanceContext, act: Disturbance) -> None:
    """Take the lease of a node, and return it later or, with a value, when it is waited for."""
    context.users.take_lease(act.node)
    if not act.value:
        context.call_after(act.seconds, lambda later: later.users.return_lease(act.node))


LEASES: dict[str, Perform] = {
    "take_lease": _take_lease,
    "return_lease": lambda context, act: context.users.return_lease(act.node),
}
"""Drawn for their own seeds."""


def random_leases(random: Random, nodes: Sequence[str], number: int) -> list[Disturbance]:
    return [
        Disturbance(
            at=round(random.uniform(0.0, 5400.0), 2),
            what="take_lease",
            node=random.choice(nodes),
            value=random.choice(VALUES["take_lease"]),
            seconds=random.choice((1.0, 45.0, 400.0, 1500.0)),
        )
        for _ in range(number)
    ]


MIG_CONFIGS = ("seven", "mixed", "all-disabled", "fails", "reboots", "unknown", "")
MIG_ACTS: dict[str, Perform] = {
    "set_mig_config": lambda context, act: context.users.set_mig_config(act.node, act.value)
}
"""Drawn for their own seeds."""


def random_mig_acts(random: Random, nodes: Sequence[str], number: int) -> list[Disturbance]:
    return [
        Disturbance(
            at=round(random.uniform(0.0, 5400.0), 2),
            what="set_mig_config",
            node=random.choice(nodes),
            value=random.choice(MIG_CONFIGS),
        )
        for _ in range(number)
    ]


GPU_FAILURES = ("0 reload", "1 reboot", "0 repair", "all reload", "all repair")
"""Which GPUs fail, and what cures them."""


def _fail_gpus(context: DisturbanceContext, act: Disturbance) -> None:
    which, cure = act.value.split()
    node = context.state.nodes.get(act.node)
    gpus = node.view.gpus if node is not None else 1
    for index in range(gpus) if which == "all" else (int(which),):
        context.faults.fail_gpu(act.node, index, GpuCure(cure))


GPU_FAULTS: dict[str, Perform] = {
    "fail_gpus": _fail_gpus,
    "repair_gpus": lambda context, act: context.faults.repair_gpus(act.node),
}
"""Drawn for their own seeds."""


def random_gpu_faults(random: Random, nodes: Sequence[str], number: int) -> list[Disturbance]:
    drawn: list[Disturbance] = []
    for _ in range(number):
        what = random.choice(("fail_gpus", "fail_gpus", "fail_gpus", "repair_gpus"))
        # Exponents below 1 draw early times, and 0 a GPU that had failed before the rollout.
        exponent = random.choice((0.0, 0.6, 0.75, 1.0))
        at = round(random.uniform(0.0, 5400.0) ** exponent - (exponent == 0.0), 2)
        value = random.choice(VALUES.get(what, ("",)))
        drawn.append(Disturbance(at=at, what=what, node=random.choice(nodes), value=value))
    return drawn


TAINT_ACTS: dict[str, Perform] = {
    "taint": lambda context, act: context.users.taint(act.node, act.value),
    "untaint": lambda context, act: context.users.untaint(act.node, act.value),
}
"""Drawn for their own seeds."""
PERSONS_TAINT = "example.com/maintenance"


def random_taint_acts(random: Random, nodes: Sequence[str], number: int) -> list[Disturbance]:
    drawn: list[Disturbance] = []
    for _ in range(number):
        what = random.choice(("taint", "taint", "untaint"))
        # Exponents below 1 draw early times.
        at = round(random.uniform(0.0, 5400.0) ** random.choice((0.6, 0.75, 1.0)), 2)
        value = random.choice(VALUES[what])
        drawn.append(Disturbance(at=at, what=what, node=random.choice(nodes), value=value))
    return drawn


def random_unseen_end(random: Random, nodes: Sequence[str], at: float) -> Disturbance:
    return Disturbance(
        at=at,
        what="end_driver_unseen",
        node=random.choice(nodes),
        value=random.choice(("crash", "delete", "force")),
        seconds=random.choice((6.0, 8.0, 20.0)),
    )


_COMPONENTS = ("driver", "driver", "driver", "validator", "plugin", "discovery", "telemetry")
VALUES: dict[str, tuple[str, ...]] = {
    "set_state": (
        "",
        *(3 * (UpgradeState.UPGRADE_REQUIRED.value,)),
        UpgradeState.UPGRADE_DONE.value,
        UpgradeState.UPGRADE_FAILED.value,
        UpgradeState.POD_RESTART_REQUIRED.value,
        "nonsense",
    ),
    "set_driver_label": ("", "p-A-u24", "p-B-u24", "no-such-label"),
    "set_record": ("", "garbled"),
    "set_lease": ("", "garbled"),
    "take_lease": ("", "stays"),
    "set_mig_config": MIG_CONFIGS,
    "fail_gpus": GPU_FAILURES,
    "taint": (PERSONS_TAINT, policies.STARTUP_TAINT),
    "untaint": (PERSONS_TAINT, policies.OTHERS_TAINT.key),
    "set_request": ("adopt", "forget", "without-preflight", "nonsense"),
    "delete_driver_pod": ("", "", "force"),
    "reboot": ("", "", "6.9"),
    "reboot_as_other_variant": ("u24", "u22"),
    "reboot_cut_off": ("at-once", "at-once 6.9", "moved-disk", "failed", "failed 6.9"),
    "stop_agent": _COMPONENTS,
    "hang_agent": _COMPONENTS,
    "restart_agent": _COMPONENTS,
    "lose_agent_journal": _COMPONENTS,
    "miss_pokes": _COMPONENTS,
    "set_brake": ("Pause", "Freeze"),
    "change_target": ("A", "B", "C", "C"),
    "flap_target": ("A", "B", "C"),
    "freeze_view": ("nodes", "pods", "reports", "rollouts"),
    "mute_source": ("nodes", "pods", "rollouts", "policies", "daemonsets"),
}
"""The values that a disturbance draws from."""

_ACTIONS: dict[str, Perform] = {
    **{what: action for what, (_, action) in (NODE_DISTURBANCES | POOL_DISTURBANCES).items()},
    **UNSEEN_ENDS,
    **CUT_OFF,
    **LEASES,
    **MIG_ACTS,
    **GPU_FAULTS,
    **TAINT_ACTS,
}
