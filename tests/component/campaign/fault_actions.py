"""Faults by name; `user_actions` has what people do."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from demo.node_agents import journal_path
from libs.bus.port import BusError
from libs.contracts.identities import Identity, Writer
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.subjects import COMMANDS, STATE, Beat, State
from libs.kube.errors import NotFound
from libs.kube.resources import LEASES
from libs.testing.apiserver.faults import Fault, RefuseRequest, Restart
from libs.testing.bus import TraceRecord
from libs.testing.cluster.views import PODS, Pod
from services.scheduler import resources
from services.scheduler.role import LEASE
from tests.component.campaign import user_actions
from tests.component.campaign.roles import NAMESPACE, ROLES, RoleProcess, user_of
from tests.component.campaign.user_actions import (
    DURATION,
    ActionKind,
    Perform,
    ScheduledAction,
    on_node,
)
from tests.component.campaign.world import CampaignWorld

LOSE_REPORTS: Final = "lose-reports"
FLOOD: Final = 500
SECONDS: Final = (-90.0, 90.0)
HOUR: Final = (-3600.0, 3600.0)

# Cluster roles.


def _kills_role(writer: Writer) -> Perform:
    async def kill(world: CampaignWorld, _action: ScheduledAction) -> bool:
        role = world.process_of(writer)
        was_running = not role.task.done()
        await role.kill()
        return was_running

    return kill


async def _cut_scheduler(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Cut the connection after this many more writes; the last one gets no response."""
    role = world.process_of(Writer.SCHEDULER)
    role.transport.cut_after = role.transport.writes + int(action.value)
    world.run_in_background(_kill_when_cut(role))
    return not role.task.done()


async def _kill_when_cut(role: RoleProcess) -> None:
    await role.transport.cut.wait()
    await role.kill()


async def _cut_at_slot(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Kill the scheduler after the bus has stored this many more of its messages."""
    role, remaining = world.process_of(Writer.SCHEDULER), int(action.value)

    def stored(record: TraceRecord) -> None:
        nonlocal remaining
        if record.action == "store" and record.identity == str(role.bus.identity):
            remaining -= 1
            if remaining < 0:
                role.transport.cut.set()

    world.add_bus_listener(stored)
    world.run_in_background(_kill_when_cut(role))
    return not role.task.done()


async def _rival(world: CampaignWorld, _action: ScheduledAction) -> bool:
    """Start another scheduler and take the lease away from the leader."""
    world.start(Writer.SCHEDULER)
    await world.sleep(2)
    await _take_lease(world)
    return True


async def _two_leaders(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Like `_rival`, but the old leader gets no lease responses: for seconds two lead."""
    role = world.process_of(Writer.SCHEDULER)
    role.transport.lease_away = True

    world.run_after(action.value, lambda: setattr(role.transport, "lease_away", False))
    return await _rival(world, action)


async def _take_lease(world: CampaignWorld) -> None:
    path = LEASES.path(namespace=NAMESPACE, name=LEASE)
    released = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    merge = "application/merge-patch+json"
    await world.kube.request("PATCH", path, body=released, content_type=merge)


# Agents.


def _kills(writer: Writer) -> Perform:
    async def kill(world: CampaignWorld, action: ScheduledAction) -> bool:
        return world.nodes[action.node].kill(writer)

    return kill


def _cuts_off(writer: Writer) -> Perform:
    """Cut the agent off the bus for a while."""

    async def cut_off(world: CampaignWorld, action: ScheduledAction) -> bool:
        identity = Identity(writer=writer, node=action.node)
        world.bus.cut(identity)
        world.run_after(action.value, lambda: world.bus.restore(identity))
        return world.nodes[action.node].is_running(writer)

    return cut_off


def _forgets(writer: Writer) -> Perform:
    """Kill the agent and delete its journal."""

    async def forget(world: CampaignWorld, action: ScheduledAction) -> bool:
        sim_node = world.nodes[action.node]
        killed = sim_node.kill(writer)
        journal = sim_node.machine.root / journal_path(writer)
        entries = await sim_node.entries()
        world.record_lost_entries(entry for entry in entries if entry.component == writer)
        shutil.rmtree(journal.parent, ignore_errors=True)
        return killed

    return forget


async def _lose_disk(world: CampaignWorld, action: ScheduledAction) -> bool:
    machine = world.nodes[action.node].machine
    machine.break_disk()
    world.run_after(action.value, machine.repair_disk)
    return True


# Bus and API.


async def _lose_commands(world: CampaignWorld, _action: ScheduledAction) -> bool:
    world.bus.lose_stream(COMMANDS, remade=True)
    return True


async def _lose_reports(world: CampaignWorld, _action: ScheduledAction) -> bool:
    world.bus.lose_stream(STATE, remade=True)
    return True


def _floods(kind: type[Beat | State]) -> Perform:
    """Let somebody with the rights of an agent send what is not readable, as fast as he can."""

    async def flood(world: CampaignWorld, action: ScheduledAction) -> bool:
        scope = {"cluster": "default", "node": action.node, "component": Writer.VALIDATOR.value}
        subject = str(Beat(**scope) if kind is Beat else State(**scope, kind="facts"))
        hostile = world.bus.connect(Identity(writer=Writer.VALIDATOR, node=action.node))
        with suppress(BusError):
            for _ in range(FLOOD):
                await hostile.publish(subject, b"{")
        hostile.kill()
        return True

    return flood


# Clocks. They stay wrong: nobody puts them right.


async def _set_scheduler(world: CampaignWorld, action: ScheduledAction) -> bool:
    world.process_of(Writer.SCHEDULER).clock.ahead += action.value
    return True


async def _set_roles(world: CampaignWorld, action: ScheduledAction) -> bool:
    for writer in ROLES:
        world.process_of(writer).clock.ahead += action.value
    return True


async def _set_node(world: CampaignWorld, action: ScheduledAction) -> bool:
    world.set_clock(action.node, action.value)
    return True


async def _bus_away(world: CampaignWorld, action: ScheduledAction) -> bool:
    world.bus.stop()
    world.run_after(action.value, world.bus.start)
    return True


async def _drop_watches(world: CampaignWorld, _action: ScheduledAction) -> bool:
    faults = world.server.faults
    return sum(faults.drop_watches(user=user_of(writer), clean=False) for writer in ROLES) > 0


async def _api_restart(world: CampaignWorld, _action: ScheduledAction) -> bool:
    user = user_of(Writer.SCHEDULER)
    world.server.faults.add(Fault(effect=Restart(), user=user, times=1))
    return True


async def _api_away(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Refuse requests of all our roles."""
    faults = world.server.faults
    faults_added = [
        faults.add(Fault(effect=RefuseRequest(503), user=user_of(writer))) for writer in ROLES
    ]

    world.run_after(action.value, lambda: [faults.remove(fault) for fault in faults_added])
    return True


# Machines and their driver pods.


async def _reboot(world: CampaignWorld, action: ScheduledAction) -> bool:
    world.run_in_background(world.nodes[action.node].machine.reboot())
    return True


async def _vanish(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Switch the machine off; its Node stays."""
    machine = world.nodes[action.node].machine
    machine.power_off()
    world.run_after(action.value, machine.power_on)
    return True


async def _recreate(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Delete the Node; after a while the kubelet creates another one."""
    try:
        node = await world.kube.get(resources.NODES, action.node)
        await world.kube.delete(resources.NODES, action.node, uid=node.metadata.uid)
    except NotFound:
        return False

    world.run_after(action.value, world.nodes[action.node].kubelet.register)
    return True


async def _driver_pods(world: CampaignWorld, node: str) -> list[Pod]:
    pods = (await world.kube.list_page(PODS, namespace=NAMESPACE)).items
    return [
        pod
        for pod in pods
        if pod.spec.node_name == node and DRIVER_LABEL in pod.metadata.labels and not pod.deleting
    ]


async def _delete_driver_pod(world: CampaignWorld, action: ScheduledAction) -> bool:
    pods = await _driver_pods(world, action.node)
    for pod in pods:
        path = PODS.path(namespace=NAMESPACE, name=pod.metadata.name)
        await world.kube.request("DELETE", path)
    return bool(pods)


async def _evict_driver_pod(world: CampaignWorld, action: ScheduledAction) -> bool:
    pods = await _driver_pods(world, action.node)
    return any([await user_actions.evict(world, pod) for pod in pods])


async def _hold_devices(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Let a process outside of pods hold a GPU for a while, if a driver is loaded."""
    machine = world.nodes[action.node].machine
    try:
        pid = machine.start_process(0)
    except ValueError:
        return False

    world.run_after(action.value, lambda: machine.end_process(pid))
    return True


FAULT_ACTIONS: Final[Mapping[str, ActionKind]] = {
    # cluster roles
    "kill-scheduler": ActionKind(_kills_role(Writer.SCHEDULER), 3, often=2.0),
    "cut-scheduler": ActionKind(_cut_scheduler, 3, (0.0, 12.0), often=3.0),
    "cut-scheduler-at-slot": ActionKind(_cut_at_slot, 3, (0.0, 8.0), often=2.0),
    "rival": ActionKind(_rival, often=2.0),
    "two-leaders": ActionKind(_two_leaders, 2, (3.0, 30.0), often=3.0),
    "kill-driver-cluster": ActionKind(_kills_role(Writer.DRIVER_CLUSTER)),
    "kill-discovery-cluster": ActionKind(_kills_role(Writer.DISCOVERY_CLUSTER)),
    "kill-validator-cluster": ActionKind(_kills_role(Writer.VALIDATOR_CLUSTER)),
    "kill-telemetry-cluster": ActionKind(_kills_role(Writer.TELEMETRY_CLUSTER)),
    # agents
    "kill-driver": on_node(_kills(Writer.DRIVER), 3, often=2.0),
    "kill-validator": on_node(_kills(Writer.VALIDATOR), 2),
    "kill-discovery": on_node(_kills(Writer.DISCOVERY)),
    "kill-telemetry": on_node(_kills(Writer.TELEMETRY)),
    "deaf-driver": on_node(_cuts_off(Writer.DRIVER), values=(5.0, 200.0)),
    "deaf-validator": on_node(_cuts_off(Writer.VALIDATOR), values=(5.0, 200.0)),
    "deaf-discovery": on_node(_cuts_off(Writer.DISCOVERY), values=(5.0, 200.0)),
    "forget-driver": on_node(_forgets(Writer.DRIVER), 2),
    "forget-validator": on_node(_forgets(Writer.VALIDATOR)),
    "lose-disk": on_node(_lose_disk, values=DURATION),
    # bus and API
    "lose-commands": ActionKind(_lose_commands, 2),
    "bus-away": ActionKind(_bus_away, values=(2.0, 120.0)),
    LOSE_REPORTS: ActionKind(_lose_reports, 2),
    "flood-beats": on_node(_floods(Beat), 2),
    "flood-reports": on_node(_floods(State), 2),
    "drop-watches": ActionKind(_drop_watches, 2),
    "api-restart": ActionKind(_api_restart),
    "api-away": ActionKind(_api_away, values=(2.0, 60.0)),
    # clocks
    "step-scheduler": ActionKind(_set_scheduler, 3, SECONDS, often=2.0),
    "step-roles": ActionKind(_set_roles, 2, HOUR),
    "step-node": on_node(_set_node, 2, HOUR),
    # machines and pods
    "reboot": on_node(_reboot, 2),
    "vanish": on_node(_vanish, values=(20.0, 150.0)),
    "recreate": on_node(_recreate, values=(0.5, 60.0)),
    "delete-driver-pod": on_node(_delete_driver_pod, 2),
    "evict-driver-pod": on_node(_evict_driver_pod),
    "hold-devices": on_node(_hold_devices, values=DURATION),
}
