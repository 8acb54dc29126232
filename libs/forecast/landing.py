"""What a node and its machine are like at the end of a plain way, upgraded in good order.

As whoever decides step by step would have left them. Must not know how long anything took.
"""

from libs.contracts.commands import Command, Idle, Order, Proven
from libs.contracts.facts import LoadedDriver
from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, Record, UpgradeState
from libs.contracts.reports import Evidence, Outcome, Result
from libs.forecast.plain import Way
from libs.forecast.stage import agents, api, driving, works
from libs.forecast.stage.fields import applied
from libs.forecast.stage.loading import version_of
from libs.forecast.stage.objects import (
    Agent,
    Driver,
    Loaded,
    Machine,
    Node,
    Phase,
    Said,
    Slot,
    Status,
)
from libs.forecast.stage.paths import DRIVER, RECORD, SCHEDULER, STATE
from libs.forecast.stage.state import State
from libs.forecast.stage.validating import MIG, RUNTIME

_BY = api.By(Verb.APPLY, SCHEDULER, MANAGER)
_VALIDATED, _IDLE = 2, 3
"""The numbers of the last ops under a lease."""


def land(state: State, node: Node, way: Way) -> None:
    """The new driver runs and is proven, all agents are idle, and the node is given back."""
    machine = state.machines[node.name]
    _tried(machine, way)
    _loads(state, machine, way)
    evidence = _evidence(state, node, machine, way)
    for agent in machine.agents.values():
        _instructed(state, (node, machine, agent), way, evidence)
    record = Record(
        node_uid=node.uid,
        epoch=state.epoch,
        token=way.record.token,
        pool=way.record.pool,
        target=way.record.target,
        label=way.build.label,
        state=UpgradeState.UPGRADE_DONE,
        since=state.now,
        boot_id=machine.boot_id,
        restarts=way.record.restarts,
        evidence=evidence,
    )
    said = {STATE: UpgradeState.UPGRADE_DONE.value, DRIVER: way.build.label, RECORD: record}
    api.change_fields(state, node, applied(node.fields, MANAGER, said), _BY)
    node.taint = api.cordoned(node)
    driving.tell_facts(state, machine)
    works.refill(state, node.name, node.uid)


def _tried(machine: Machine, way: Way) -> None:
    """Later attempts are numbered on."""
    label = way.build.label
    once = (f"run {label}", f"validation {label}")
    for what in ("unload",) * way.unloads + (f"load {label}",) * way.loads + once:
        machine.attempt(what)


def _loads(state: State, machine: Machine, way: Way) -> None:
    """The new driver in the place of the old one."""
    uid, digest = state.uid("driver-pod"), way.build.install_digest
    status = Status(ready=True, started=way.started, restarts=way.loads - 1)
    machine.admitted = uid
    machine.loaded = Loaded(digest, LoadedDriver(version=version_of(digest), loaded_at=way.loaded))
    machine.drivers = {
        uid: Driver(
            uid=uid,
            name=f"driver-{machine.name}-{uid}",
            label=way.build.label,
            install_digest=digest,
            on_machine=True,
            phase=Phase.RUNNING,
            status=status,
            shown=status,
        )
    }


def _evidence(state: State, node: Node, machine: Machine, way: Way) -> Evidence:
    digest = way.build.install_digest
    return Evidence(
        epoch=state.epoch,
        token=way.record.token,
        op=_VALIDATED,
        passed=True,
        label=way.build.label,
        node_uid=node.uid,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        driver_pod_uid=machine.admitted,
        driver_started=way.started,
        driver_version=version_of(digest),
        driver_digest=digest,
        runtime_digest=RUNTIME,
        mig_digest=MIG,
        at=state.now,
    )


def _instructed(
    state: State, where: tuple[Node, Machine, Agent], way: Way, evidence: Evidence
) -> None:
    """It was told to be idle, with what is proven where that matters, and has answered."""
    node, machine, agent = where
    quiet = agent.part in agents.QUIET
    proven = Proven(label=way.build.label, kernel=machine.kernel) if quiet else None
    command = Command.of(
        Idle(proven=proven),
        node=node.name,
        node_uid=node.uid,
        boot_id=machine.boot_id,
        epoch=state.epoch,
        order=Order(way.record.token, _IDLE),
        deadline=state.now,
    )
    key = node.name, agent.part
    before = state.slots.get(key)
    state.slots[key] = Slot(1 if before is None else before.sequence + 1, command)
    agent.epoch, agent.highest = state.epoch, command.order
    agent.slot, agent.proven, agent.holds = command, proven, not quiet
    agent.ended = Result(
        epoch=state.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        outcome=Outcome.DONE,
    )
    proof = evidence if agent.part == "validator" else None
    agent.says = agent.said = Said(result=agent.ended, evidence=proof, highest=command.order)
