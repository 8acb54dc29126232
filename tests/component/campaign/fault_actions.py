"""What breaks, each by a word; `people` does the rest.

An act that has nothing to act on does nothing, and says so.
"""

import shutil
from collections.abc import Callable, Coroutine
from typing import Any, Final

from demo.node_agents import journal_path
from libs.contracts.identities import Identity, Writer
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.streams import COMMANDS
from libs.kube.errors import NotFound
from libs.kube.resources import LEASES
from libs.testing.apiserver.faults import Fault, RefuseRequest, Restart
from libs.testing.bus import TraceRecord
from libs.testing.cluster.views import PODS, Pod
from services.scheduler import resources
from services.scheduler.role import LEASE
from tests.component.campaign import user_actions
from tests.component.campaign.roles import NAMESPACE, ROLES, RoleProcess, user_of
from tests.component.campaign.scenario import ScheduledAction
from tests.component.campaign.world import CampaignWorld

Perform = Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, bool]]


async def perform(town: CampaignWorld, act: ScheduledAction) -> bool:
    """It happens now; what ends later ends by itself. Whether there was anything to act on."""
    return await _ACTS[act.what](town, act)


# Cluster roles.


def _kills_role(writer: Writer) -> Perform:
    async def kill(town: CampaignWorld, _act: ScheduledAction) -> bool:
        role = town.process_of(writer)
        lived = not role.task.done()
        await role.kill()
        return lived

    return kill


async def _cut_scheduler(town: CampaignWorld, act: ScheduledAction) -> bool:
    """Its last write but so many is carried out, and it never hears of it."""
    role = town.process_of(Writer.SCHEDULER)
    role.transport.cut_after = role.transport.writes + int(act.value)
    town.run_in_background(_die_when_cut(role))
    return not role.task.done()


async def _die_when_cut(role: RoleProcess) -> None:
    await role.transport.cut.wait()
    await role.kill()


async def _cut_at_slot(town: CampaignWorld, act: ScheduledAction) -> bool:
    """So many more of its messages are stored, and it does not live to hear that."""
    role, left = town.process_of(Writer.SCHEDULER), int(act.value)

    def stored(it: TraceRecord) -> None:
        nonlocal left
        if it.what == "store" and it.who == str(role.bus.identity):
            left -= 1
            if left < 0:
                role.transport.cut.set()

    town.add_bus_listener(stored)
    town.run_in_background(_die_when_cut(role))
    return not role.task.done()


async def _rival(town: CampaignWorld, _act: ScheduledAction) -> bool:
    """Another one is there, and somebody takes the lease from who leads."""
    town.start(Writer.SCHEDULER)
    await town.sleep(2)
    await _take_lease(town)
    return True


async def _two_leaders(town: CampaignWorld, act: ScheduledAction) -> bool:
    """The same, and who led does not hear of it: for some seconds both believe that they lead."""
    role = town.process_of(Writer.SCHEDULER)
    role.transport.lease_away = True

    async def heard() -> None:
        role.transport.lease_away = False

    town.run_after(act.value, heard)
    return await _rival(town, act)


async def _take_lease(town: CampaignWorld) -> None:
    path = LEASES.path(namespace=NAMESPACE, name=LEASE)
    taken = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    merge = "application/merge-patch+json"
    await town.kube.request("PATCH", path, body=taken, content_type=merge)


# Agents.


def _kills(writer: Writer) -> Perform:
    async def kill(town: CampaignWorld, act: ScheduledAction) -> bool:
        return town.nodes[act.node].kill(writer)

    return kill


def _deafens(writer: Writer) -> Perform:
    """The agent is cut off from the bus for a while."""

    async def deafen(town: CampaignWorld, act: ScheduledAction) -> bool:
        identity = Identity(writer=writer, node=act.node)

        async def back() -> None:
            town.bus.restore(identity)

        town.bus.cut(identity)
        town.run_after(act.value, back)
        return town.nodes[act.node].is_running(writer)

    return deafen


def _forgets(writer: Writer) -> Perform:
    """The agent dies, and what it wrote down is gone."""

    async def forget(town: CampaignWorld, act: ScheduledAction) -> bool:
        station = town.nodes[act.node]
        killed = station.kill(writer)
        place = station.machine.root / journal_path(writer)
        town.record_lost_entries(
            [one for one in await station.entries() if one.component == writer]
        )
        shutil.rmtree(place.parent, ignore_errors=True)
        return killed

    return forget


async def _lose_disk(town: CampaignWorld, act: ScheduledAction) -> bool:
    machine = town.nodes[act.node].machine

    async def found() -> None:
        machine.repair_disk()

    machine.break_disk()
    town.run_after(act.value, found)
    return True


# Bus and API.


async def _lose_commands(town: CampaignWorld, _act: ScheduledAction) -> bool:
    town.bus.lose_stream(COMMANDS, remade=True)
    return True


async def _bus_away(town: CampaignWorld, act: ScheduledAction) -> bool:
    async def back() -> None:
        town.bus.start()

    town.bus.stop()
    town.run_after(act.value, back)
    return True


async def _drop_watches(town: CampaignWorld, _act: ScheduledAction) -> bool:
    faults = town.server.faults
    return sum(faults.drop_watches(user=user_of(writer), clean=False) for writer in ROLES) > 0


async def _api_restart(town: CampaignWorld, _act: ScheduledAction) -> bool:
    user = user_of(Writer.SCHEDULER)
    town.server.faults.add(Fault(effect=Restart(), user=user, times=1))
    return True


async def _api_away(town: CampaignWorld, act: ScheduledAction) -> bool:
    """From all of ours, and nobody else."""
    faults = town.server.faults
    struck = [
        faults.add(Fault(effect=RefuseRequest(503), user=user_of(writer))) for writer in ROLES
    ]

    async def back() -> None:
        for one in struck:
            faults.remove(one)

    town.run_after(act.value, back)
    return True


# Machines and their driver pods.


async def _reboot(town: CampaignWorld, act: ScheduledAction) -> bool:
    machine = town.nodes[act.node].machine

    async def reboot() -> None:
        await machine.reboot()

    town.run_in_background(reboot())
    return True


async def _vanish(town: CampaignWorld, act: ScheduledAction) -> bool:
    """The machine is off, and its Node stays."""
    machine = town.nodes[act.node].machine

    async def back() -> None:
        machine.power_on()

    machine.power_off()
    town.run_after(act.value, back)
    return True


async def _recreate(town: CampaignWorld, act: ScheduledAction) -> bool:
    """Its Node is deleted; after a while the kubelet writes another one."""
    kubelet = town.nodes[act.node].kubelet
    try:
        node = await town.kube.get(resources.NODES, act.node)
        await town.kube.delete(resources.NODES, act.node, uid=node.metadata.uid)
    except NotFound:
        return False

    async def back() -> None:
        kubelet.register()

    town.run_after(act.value, back)
    return True


async def _driver_pods(town: CampaignWorld, node: str) -> list[Pod]:
    found = (await town.kube.list_page(PODS, namespace=NAMESPACE)).items
    return [
        pod
        for pod in found
        if pod.spec.node_name == node and DRIVER_LABEL in pod.metadata.labels and not pod.deleting
    ]


async def _delete_driver_pod(town: CampaignWorld, act: ScheduledAction) -> bool:
    pods = await _driver_pods(town, act.node)
    for pod in pods:
        path = PODS.path(namespace=NAMESPACE, name=pod.metadata.name)
        await town.kube.request("DELETE", path)
    return bool(pods)


async def _evict_driver_pod(town: CampaignWorld, act: ScheduledAction) -> bool:
    pods = await _driver_pods(town, act.node)
    return any([await user_actions.evict(town, pod) for pod in pods])


async def _hold_devices(town: CampaignWorld, act: ScheduledAction) -> bool:
    """A process of the machine itself computes for a while, if there is a driver."""
    machine = town.nodes[act.node].machine
    try:
        pid = machine.start_process(0)
    except ValueError:
        return False

    async def ends() -> None:
        machine.end_process(pid)

    town.run_after(act.value, ends)
    return True


_ACTS: Final[dict[str, Perform]] = {
    "kill-scheduler": _kills_role(Writer.SCHEDULER),
    "cut-scheduler": _cut_scheduler,
    "cut-scheduler-at-slot": _cut_at_slot,
    "rival": _rival,
    "two-leaders": _two_leaders,
    "kill-driver-cluster": _kills_role(Writer.DRIVER_CLUSTER),
    "kill-discovery-cluster": _kills_role(Writer.DISCOVERY_CLUSTER),
    "kill-validator-cluster": _kills_role(Writer.VALIDATOR_CLUSTER),
    "kill-telemetry-cluster": _kills_role(Writer.TELEMETRY_CLUSTER),
    "kill-driver": _kills(Writer.DRIVER),
    "kill-validator": _kills(Writer.VALIDATOR),
    "kill-discovery": _kills(Writer.DISCOVERY),
    "kill-telemetry": _kills(Writer.TELEMETRY),
    "deaf-driver": _deafens(Writer.DRIVER),
    "deaf-validator": _deafens(Writer.VALIDATOR),
    "deaf-discovery": _deafens(Writer.DISCOVERY),
    "forget-driver": _forgets(Writer.DRIVER),
    "forget-validator": _forgets(Writer.VALIDATOR),
    "lose-disk": _lose_disk,
    "lose-commands": _lose_commands,
    "bus-away": _bus_away,
    "drop-watches": _drop_watches,
    "api-restart": _api_restart,
    "api-away": _api_away,
    "reboot": _reboot,
    "vanish": _vanish,
    "recreate": _recreate,
    "delete-driver-pod": _delete_driver_pod,
    "evict-driver-pod": _evict_driver_pod,
    "hold-devices": _hold_devices,
    **user_actions.USER_ACTIONS,
}
