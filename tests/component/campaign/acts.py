"""What breaks and what people do, each by a word.

An act that has nothing to act on does nothing.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from sluice.contracts.identities import Identity, Writer
from sluice.contracts.node import STATE_LABEL, UpgradeState
from sluice.contracts.streams import COMMANDS
from sluice.kube.errors import Conflict, NotFound
from sluice.kube.resources import LEASES
from sluice.scheduler import things
from sluice.scheduler.role import LEASE
from sluice.sim.apiserver.faults import Cut, Delay, Fault, Refuse, Strike
from sluice.sim.cluster.kinds import PODS
from tests.component.campaign.roles import NAMESPACE, ROLES, Role, user_of
from tests.component.campaign.scenario import Act, Strikes
from tests.component.campaign.town import POOL, Town

_WRITES = ("create", "update", "patch", "apply", "delete", "evict")


async def perform(town: Town, act: Act) -> None:
    """It happens now; what ends later ends by itself."""
    await _ACTS[act.what](town, act)


def strike(town: Town, strikes: Strikes) -> None:
    """From now on some of our requests go wrong, until the server's faults are cleared."""
    for writer in ROLES:
        for does, rate, verbs in _struck(strikes):
            if rate:
                user = user_of(writer)
                town.server.faults.add(Fault(does=does, verbs=verbs, user=user, probability=rate))


def _struck(strikes: Strikes) -> Iterator[tuple[Strike, float, tuple[str, ...]]]:
    yield Refuse(409), strikes.conflict, _WRITES
    yield Refuse(429, retry_after=1), strikes.busy, ()
    yield Refuse(500), strikes.broken, ()
    yield Cut("after"), strikes.cut, _WRITES
    yield Delay(2.0), strikes.late, _WRITES


async def _kill_scheduler(town: Town, _act: Act) -> None:
    await town.kept(Writer.SCHEDULER).kill()


async def _cut_scheduler(town: Town, act: Act) -> None:
    """Its last write but so many is carried out, and it never hears of it."""
    role = town.kept(Writer.SCHEDULER)
    role.wire.cut_after = role.wire.writes + int(act.value)
    town.later(_die_when_cut(role))


async def _die_when_cut(role: Role) -> None:
    await role.wire.cut.wait()
    await role.kill()


async def _rival(town: Town, _act: Act) -> None:
    """Another one is there, and somebody takes the lease from who leads."""
    town.start(Writer.SCHEDULER)
    await town.sleep(5)
    path = LEASES.path(namespace=NAMESPACE, name=LEASE)
    taken = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    merge = "application/merge-patch+json"
    await town.kube.request("PATCH", path, body=taken, content_type=merge)


async def _kill_driver_cluster(town: Town, _act: Act) -> None:
    await town.kept(Writer.DRIVER_CLUSTER).kill()


def _kills(writer: Writer) -> "Perform":
    async def kill(town: Town, act: Act) -> None:
        town.stations[act.node].kill(writer)

    return kill


async def _lose_commands(town: Town, _act: Act) -> None:
    town.bus.lose(COMMANDS, remade=True)


async def _bus_away(town: Town, act: Act) -> None:
    async def back() -> None:
        await town.sleep(act.value)
        town.bus.start()

    town.bus.stop()
    town.later(back())


async def _deaf(town: Town, act: Act) -> None:
    """The driver agent is cut off from the bus for a while."""
    identity = Identity(writer=Writer.DRIVER, node=act.node)

    async def back() -> None:
        await town.sleep(act.value)
        town.bus.restore(identity)

    town.bus.cut(identity)
    town.later(back())


async def _drop_watches(town: Town, _act: Act) -> None:
    for writer in ROLES:
        town.server.faults.drop_watches(user=user_of(writer), clean=False)


async def _reboot(town: Town, act: Act) -> None:
    async def reboot() -> None:
        await town.stations[act.node].machine.reboot()

    town.later(reboot())


async def _delete_driver_pod(town: Town, act: Act) -> None:
    for pod in (await town.kube.page(PODS, namespace=NAMESPACE)).items:
        if pod.spec.node_name == act.node and "sluice.dev/driver" in pod.metadata.labels:
            meta = pod.metadata
            try:
                await town.kube.delete(PODS, meta.name, uid=meta.uid, namespace=NAMESPACE)
            except (NotFound, Conflict):
                continue


def _cordons(unschedulable: bool) -> "Perform":
    async def cordon(town: Town, act: Act) -> None:
        """As `kubectl cordon` does it: nothing is written where it is so already."""
        try:
            node = await town.kube.get(things.NODES, act.node)
            if node.spec.unschedulable != unschedulable:
                change = {"spec": {"unschedulable": unschedulable or None}}
                await town.change(things.NODES, act.node, change)
        except NotFound:
            return

    return cordon


Perform = Callable[[Town, Act], Coroutine[Any, Any, None]]
_ACTS: dict[str, Perform] = {
    "kill-scheduler": _kill_scheduler,
    "cut-scheduler": _cut_scheduler,
    "rival": _rival,
    "kill-driver-cluster": _kill_driver_cluster,
    "kill-driver": _kills(Writer.DRIVER),
    "kill-validator": _kills(Writer.VALIDATOR),
    "kill-discovery": _kills(Writer.DISCOVERY),
    "lose-commands": _lose_commands,
    "bus-away": _bus_away,
    "deaf": _deaf,
    "drop-watches": _drop_watches,
    "reboot": _reboot,
    "delete-driver-pod": _delete_driver_pod,
    "cordon": _cordons(True),
    "uncordon": _cordons(False),
}


_RESTING = ("", UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_REQUIRED)
"""States in which a person may take any cordon off: nothing is under way there."""


# What a person does when all faults are over, and something still waits for him.


async def cure(town: Town) -> list[str]:
    """Who has failed is tried again, as many failures are accepted as there are; what was done."""
    done: list[str] = []
    rollout = await town.rollout()
    if rollout is not None:
        known = rollout.status.targets.get(town.target)
        failed = len(known.failed) if known is not None else 0
        released = rollout.spec.release
        accepted = released.failures if released and released.target == town.target else 0
        if failed and accepted < failed:
            release = {"target": town.target, "failures": failed}
            await town.change(things.ROLLOUTS, POOL, {"spec": {"release": release}})
            done.append(f"accepts {failed} failures")
    for name in town.stations:
        node = await town.kube.get(things.NODES, name)
        state = node.metadata.labels.get(STATE_LABEL)
        if node.spec.unschedulable and state in _RESTING:
            await town.change(things.NODES, name, {"spec": {"unschedulable": None}})
            done.append(f"uncordons {name}")
        if state == UpgradeState.UPGRADE_FAILED:
            wanted = {STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value}
            await town.change(things.NODES, name, {"metadata": {"labels": wanted}})
            done.append(f"tries {name} again")
    return done
