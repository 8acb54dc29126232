"""The incumbent's rules played on a fleet: duration, cost, and the harm done by a bad driver.

The rules were read in the source of the upgrade controller of the NVIDIA GPU Operator (v26.7.0).
They are in `passes` and `nodes`, their time in `controller` and `actions`, the nodes under them in
`machine`. All figures are simulated. What the source leaves open is assumed in the incumbent's
favour, and noted at the constant. Besides, no request fails, the operator is not restarted, no
person changes a node, and a pass works on the nodes as they are when it has read the last of them.

`make bench ARGS=incumbent` holds the rules against the upgrade library of March 2025 on a real
control plane (docs/comparison.md). On 20 nodes it measured, in two runs, 13.20 and 13.15 writes
per node, here 13.25 and 13.10; with a driver that never loads on one node 12.65 and 12.80, here
12.90 and 12.95, that node reported after 2305 and 2297 s, here 2435 and 2529 s. Upgrades without
trouble lasted 1837 and 1831 s, here 1480 and 1476 s: too short, in the incumbent's favour.
"""

from collections.abc import Sequence

from bench.comparison import ComparedFleet, NodeJobs, UpgradeFigures
from bench.recreation.actions import TimedActions
from bench.recreation.controller import IncumbentController
from bench.recreation.machine import EventQueue, IncumbentMachine, RequestCounts
from bench.recreation.nodes import IncumbentDriverPod, IncumbentNode
from libs.contracts.node import UpgradeState as State
from libs.forecast.world import WorldModel

HOUR = 3600.0
HORIZON = 90 * 24 * HOUR
"""The longest simulated rollout."""


def incumbent(
    fleet: ComparedFleet, world: WorldModel, *, target: str = "new", order: Sequence[str] = ()
) -> UpgradeFigures:
    """Play a rollout until it ends or stops making progress.

    `target` names the driver; `order` is that of the API server's list of driver pods, whose names
    are random: by default that of the nodes' names.
    """
    events, requests = EventQueue(), RequestCounts()
    nodes = [_node(name, fleet) for name in fleet.names]
    machines = [
        IncumbentMachine(
            node, fleet=fleet, world=world, target=target, events=events, requests=requests
        )
        for node in nodes
    ]
    jobs = [
        NodeJobs(name, number, fleet=fleet, world=world) for number, name in enumerate(fleet.names)
    ]
    listed = sorted(nodes, key=lambda node: (order or fleet.names).index(node.name))
    controller = IncumbentController(
        listed,
        fleet=fleet,
        actions=lambda wake: TimedActions(
            machines, jobs, fleet=fleet, world=world, events=events, requests=requests, wake=wake
        ),
        events=events,
        requests=requests,
    )
    for machine in machines:
        time = fleet.podless.get(machine.node.name, 0.0)
        if 0.0 < time < HORIZON:
            machine.appear(time)
    events.at(0.0, controller.wake)
    while len(events) and events.now < HORIZON:
        events.step()
        if controller.is_over:
            break
    return _figures(fleet, machines, jobs, controller.actions, requests)


def _node(name: str, fleet: ComparedFleet) -> IncumbentNode:
    old = IncumbentDriverPod(same_install=fleet.restart_only)
    return IncumbentNode(
        name=name,
        state=State.UPGRADE_DONE,
        pod=None if name in fleet.podless else old,
        validators=[True],
        cordoned=name in fleet.cordoned,
        ready=name not in fleet.not_ready,
        skipped=name in fleet.skipped,
    )


def _figures(
    fleet: ComparedFleet,
    machines: list[IncumbentMachine],
    jobs: list[NodeJobs],
    actions: TimedActions,
    requests: RequestCounts,
) -> UpgradeFigures:
    for node_jobs in jobs:
        node_jobs.settle(actions.changed)
    started = [machine for machine in machines if machine.run.started is not None]
    starts = [machine.run.started or 0.0 for machine in started]
    named = [each.run.failed for each in started if each.run.failed is not None]
    states = [_outcome(machine.node) for machine in machines]
    failed = [
        each.run.failed - (each.run.started or 0.0)
        for each in started
        if each.run.failed is not None
    ]
    done = [each.run.since for each in started if _outcome(each.node) == "done"]
    return UpgradeFigures(
        nodes=fleet.nodes,
        done=states.count("done"),
        failed=states.count("failed"),
        waiting=states.count("waiting"),
        unproven=actions.unproven,
        lasted=actions.changed,
        idle=sum(each.run.idle for each in started) / max(1, len(started)),
        reads=requests.reads / fleet.nodes,
        writes=requests.writes / fleet.nodes,
        events=requests.events / fleet.nodes,
        evictions=requests.evictions,
        refusals=requests.refusals,
        gpu_hours_idle=sum(each.idle for each in jobs) / HOUR,
        gpu_hours_redone=sum(each.redone for each in jobs) / HOUR,
        harmed=sum(not (each.node.pod and each.node.pod.in_sync) for each in started),
        started_for=max(starts) - min(starts) if starts else None,
        named_after=min(named) - min(starts) if named else None,
        done_after=max(done, default=None),
        failed_after=min(failed, default=None),
    )


def _outcome(node: IncumbentNode) -> str:
    if node.state == State.UPGRADE_FAILED:
        return "failed"
    if node.state == State.UPGRADE_DONE and node.pod is not None and node.pod.synced:
        return "done"
    return "skipped" if node.skipped else "waiting"
