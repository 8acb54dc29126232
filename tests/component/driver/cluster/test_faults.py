"""What goes wrong on the way: one object's trouble is its own, and a death between two writes."""

from typing import Any

import pytest

from libs.testing.apiserver.faults import Cut, Fault, FaultEffect, Hang, RefuseRequest
from services.driver.cluster import controller, decide, resources
from services.driver.cluster.diff import difference
from tests.component.driver.cluster.world import AGENTS, EXPORTER, POLICY, World, in_world, play
from tests.component.processes import user_of
from tests.unit.policy.situations import crd_mode_policy, nvidia_driver


@pytest.mark.parametrize(
    "does", [RefuseRequest(409), RefuseRequest(429), RefuseRequest(500), Hang()]
)
@in_world
async def test_an_object_that_fails_holds_up_no_other_and_is_made_when_it_can_be(
    world: World, does: FaultEffect
) -> None:
    await world.install_policy()
    struck = world.server.faults.add(
        Fault(effect=does, name=EXPORTER, user=user_of(World.WRITER), verbs=("apply",))
    )
    await world.lead()
    found = await world.daemon_sets()
    assert set(found) == {*AGENTS, *await world.drivers()} - {EXPORTER}
    # Doubling, the waits allow a dozen tries in that time and no more.
    assert 2 <= struck.hit_count <= 16
    world.server.faults.clear()
    await world.sleep(300)
    assert EXPORTER in await world.daemon_sets()


@in_world
async def test_what_was_carried_out_without_an_answer_is_not_written_again(world: World) -> None:
    await world.install_policy()
    world.server.faults.add(
        Fault(effect=Cut("after"), user=user_of(World.WRITER), verbs=("apply",))
    )
    await world.lead()
    assert len(await world.daemon_sets()) == 6
    names = [name for verb, _, name in world.written if verb == "apply"]
    assert sorted(names) == sorted(set(names))


@in_world
async def test_a_refused_object_is_named_in_the_status_and_retried_each_minute(
    world: World,
) -> None:
    await world.install_policy()
    refused = Fault(
        effect=RefuseRequest(403), name=EXPORTER, user=user_of(World.WRITER), verbs=("apply",)
    )
    struck = world.server.faults.add(refused)
    role = await world.lead()
    await world.sleep(600)
    assert 10 <= struck.hit_count <= 12
    said = await world.conditions()
    words = f"state-dcgm-exporter: the API server refused DaemonSet/{EXPORTER}"
    assert words in said["Degraded"]["message"]
    ((reason, message),) = await world.events()
    assert reason == "Refused"
    assert message.startswith(f"DaemonSet/{EXPORTER}: ")
    known = {"kind": "DaemonSet", "outcome": "refused"}
    assert role.value("sluice_driver_api_writes_total", **known) == struck.hit_count
    world.server.faults.clear()
    await world.sleep(120)
    said = await world.conditions()
    assert said["Degraded"]["status"] == "False"
    assert EXPORTER in await world.daemon_sets()


@in_world
async def test_changes_elsewhere_do_not_hurry_what_is_refused(world: World) -> None:
    await world.install_policy()
    refused = Fault(
        effect=RefuseRequest(403), name=EXPORTER, user=user_of(World.WRITER), verbs=("apply",)
    )
    struck = world.server.faults.add(refused)
    await world.lead()
    for number in range(100):
        await world.label("a", {"team": str(number)})
        await world.sleep(1)
    assert struck.hit_count <= 4


@in_world
async def test_another_wish_is_tried_at_once(world: World) -> None:
    await world.install_policy()
    refused = Fault(
        effect=RefuseRequest(403),
        name=EXPORTER,
        user=user_of(World.WRITER),
        verbs=("apply",),
        times=1,
    )
    world.server.faults.add(refused)
    await world.lead()
    assert EXPORTER not in await world.daemon_sets()
    env = [{"name": "A", "value": "b"}]
    await world.change_policy(dcgmExporter={"env": env})
    await world.sleep(2)
    assert EXPORTER in await world.daemon_sets()


def test_what_a_server_keeps_in_another_form_is_sent_once_for_each_wish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def otherwise(wanted: Any, there: Any) -> str:
        """As where a webhook changes what is sent, each time."""
        sick = there.metadata.name == EXPORTER
        return "spec.template.spec.schedulerName" if sick else difference(wanted, there)

    monkeypatch.setattr(decide, "difference", otherwise)
    monkeypatch.setattr(controller, "difference", otherwise)

    async def story(world: World) -> None:
        await world.install_policy()
        await world.lead()
        created = [each for each in world.revisions() if each.name == EXPORTER]
        assert [each.verb for each in created] == ["apply"]
        for number in range(20):
            await world.label("a", {"team": str(number)})
            await world.sleep(1)
        assert len([each for each in world.revisions() if each.name == EXPORTER]) == 1
        edit = {"spec": {"template": {"spec": {"priorityClassName": "low"}}}}
        await world.patch(resources.DAEMON_SETS, EXPORTER, edit)
        await world.sleep(10)
        assert len([each for each in world.revisions() if each.name == EXPORTER]) == 2

    play(story)


@in_world
async def test_a_status_that_cannot_be_written_holds_up_nothing(world: World) -> None:
    await world.install_policy()
    fault = Fault(
        effect=RefuseRequest(500),
        kind="ClusterPolicy",
        user=user_of(World.WRITER),
        verbs=("patch",),
    )
    world.server.faults.add(fault)
    await world.lead()
    assert len(await world.daemon_sets()) == 6
    assert await world.state() == ""
    world.server.faults.clear()
    await world.sleep(300)
    assert await world.state() == "notReady"


@in_world
async def test_a_server_that_restarts_and_forgets_changes_nothing(world: World) -> None:
    await world.install_policy()
    await world.lead()
    before = len(world.revisions())
    for _ in range(3):
        await world.server.restart()
        await world.sleep(100)
        await world.server.compact()
        world.server.faults.drop_watches(clean=False)
        await world.sleep(100)
    assert len(world.revisions()) == before


async def two_drivers(world: World) -> None:
    """What writes to every kind: operands, owner labels and statuses."""
    await world.install()
    world.add_kubelet("a")
    world.add_kubelet("b", version="24.04", pool="canary")
    for policy in (
        crd_mode_policy(),
        nvidia_driver("canary", nodeSelector={"pool": "canary"}, version="590.10"),
        nvidia_driver("rest", default=True),
    ):
        await world.apply(policy)
    await world.sleep(5)


async def picture(world: World) -> dict[str, Any]:
    """Everything that the role wrote, but for what is the server's."""
    made = {
        name: (each.spec, each.metadata.labels)
        for name, each in (await world.daemon_sets()).items()
    }
    nodes = await world.kube.list_page(resources.NODES)
    owners = {
        each.metadata.name: each.metadata.labels.get("nvidia.com/gpu-operator.driver.owner")
        for each in nodes.items
    }
    states = {
        (kind, name): await world.state(kind, name)
        for kind, name in (
            ("ClusterPolicy", POLICY),
            ("NVIDIADriver", "canary"),
            ("NVIDIADriver", "rest"),
        )
    }
    return {"made": made, "owners": owners, "states": states}


def test_killed_between_any_two_writes_the_next_one_goes_on() -> None:
    uids = ("canary", "rest", POLICY)

    async def whole(world: World) -> tuple[int, list[str]]:
        await two_drivers(world)
        role = await world.lead()
        names = sorted(name for _, _, name in world.written if name not in uids)
        return role.transport.writes, [_plain(name) for name in names]

    writes, names = play(whole)
    assert writes >= 13

    async def cut(world: World, after: int) -> None:
        await two_drivers(world)
        role = world.start(cut_after=after)
        await world.until(lambda: _cut(role.transport))
        await role.kill()
        await world.lead()
        seen = await picture(world)
        assert sorted(_plain(name) for name in seen["made"]) == [
            name for name in names if "nvidia-driver-startup" not in name and _is_daemon(name)
        ]
        assert seen["owners"] == {"a": "rest", "b": "canary"}
        assert set(seen["states"].values()) == {"notReady"}
        # Each was written once, whichever process it was: but for statuses, nothing twice.
        again = [_plain(name) for _, _, name in world.written if name not in uids]
        assert sorted(again) == names

    for after in range(writes):
        play(lambda world, after=after: cut(world, after))


async def _cut(wire: Any) -> bool:
    return wire.cut.is_set()


def _plain(name: str) -> str:
    """Without the digest: the uids of policies differ from run to run."""
    return "nvidia-driver-daemonset" if name.startswith("nvidia-driver-daemonset-") else name


def _is_daemon(name: str) -> bool:
    return name in AGENTS or name == "nvidia-driver-daemonset"
