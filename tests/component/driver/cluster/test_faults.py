"""Failed writes delay only their own object; a kill between any two writes loses nothing."""

from typing import Any

import pytest

from libs.testing.apiserver.faults import Cut, Fault, FaultEffect, Hang, RefuseRequest
from services.driver.cluster import controller, decide, resources
from services.driver.cluster.diff import difference
from tests.component.driver.cluster.world import (
    AGENTS,
    DRIVER_PREFIX,
    EXPORTER,
    POLICY,
    World,
    in_world,
    is_driver,
    play,
)
from tests.component.processes import user_of
from tests.unit.policy.situations import crd_mode_policy, nvidia_driver


@pytest.mark.parametrize(
    "effect", [RefuseRequest(409), RefuseRequest(429), RefuseRequest(500), Hang()]
)
@in_world
async def test_a_failing_object_delays_no_other_and_is_created_later(
    world: World, effect: FaultEffect
) -> None:
    await world.install_policy()
    fault = world.server.faults.add(
        Fault(effect=effect, name=EXPORTER, user=user_of(World.WRITER), verbs=("apply",))
    )
    await world.lead()
    found = await world.daemon_sets()
    assert set(found) == {*AGENTS, *await world.drivers()} - {EXPORTER}
    # With back-off, about a dozen attempts fit into that time.
    assert 2 <= fault.hit_count <= 16
    world.server.faults.clear()
    await world.sleep(300)
    assert EXPORTER in await world.daemon_sets()


@in_world
async def test_a_write_that_took_effect_without_a_response_is_not_repeated(world: World) -> None:
    await world.install_policy()
    world.server.faults.add(
        Fault(effect=Cut("after"), user=user_of(World.WRITER), verbs=("apply",))
    )
    await world.lead()
    assert len(await world.daemon_sets()) == 7
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
    fault = world.server.faults.add(refused)
    role = await world.lead()
    await world.sleep(600)
    assert 10 <= fault.hit_count <= 12
    conditions = await world.conditions()
    words = f"state-dcgm-exporter: the API server refused DaemonSet/{EXPORTER}"
    assert words in conditions["Degraded"]["message"]
    ((reason, message),) = await world.events()
    assert reason == "Refused"
    assert message.startswith(f"DaemonSet/{EXPORTER}: ")
    labels = {"kind": "DaemonSet", "outcome": "refused"}
    assert role.value("sluice_driver_api_writes_total", **labels) == fault.hit_count
    world.server.faults.clear()
    await world.sleep(120)
    conditions = await world.conditions()
    assert conditions["Degraded"]["status"] == "False"
    assert EXPORTER in await world.daemon_sets()


@in_world
async def test_unrelated_changes_do_not_retry_a_refused_object_sooner(world: World) -> None:
    await world.install_policy()
    refused = Fault(
        effect=RefuseRequest(403), name=EXPORTER, user=user_of(World.WRITER), verbs=("apply",)
    )
    fault = world.server.faults.add(refused)
    await world.lead()
    for number in range(100):
        await world.label("a", {"team": str(number)})
        await world.sleep(1)
    assert fault.hit_count <= 4


@in_world
async def test_a_changed_object_is_tried_at_once_after_a_refusal(world: World) -> None:
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
    annotations = {"a": "b"}
    await world.change_policy(dcgmExporter={"annotations": annotations})
    await world.sleep(2)
    assert EXPORTER in await world.daemon_sets()


def test_an_object_that_the_server_rewrites_is_applied_once_per_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rewritten(wanted: Any, actual: Any) -> str:
        """Report a difference each time, as where a webhook changes the object."""
        is_rewritten = actual.metadata.name == EXPORTER
        return "spec.template.spec.schedulerName" if is_rewritten else difference(wanted, actual)

    monkeypatch.setattr(decide, "difference", rewritten)
    monkeypatch.setattr(controller, "difference", rewritten)

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
async def test_a_failing_status_write_delays_no_object(world: World) -> None:
    await world.install_policy()
    fault = Fault(
        effect=RefuseRequest(500),
        kind="ClusterPolicy",
        user=user_of(World.WRITER),
        verbs=("patch",),
    )
    world.server.faults.add(fault)
    await world.lead()
    assert len(await world.daemon_sets()) == 7
    assert await world.observed_generation() == decide.NEVER
    world.server.faults.clear()
    await world.sleep(300)
    assert "Ready" in await world.conditions()


@in_world
async def test_restarts_and_compactions_of_the_server_cause_no_writes(world: World) -> None:
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
    """Install two drivers, so that operands, owner labels and statuses are written."""
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


async def written_state(world: World) -> dict[str, Any]:
    """Return everything that the role wrote, without the fields that the server sets."""
    daemon_sets = {
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
    return {"daemon_sets": daemon_sets, "owners": owners, "states": states}


@pytest.mark.dear("a run of its own for each write that is the last")
def test_a_successor_continues_after_a_kill_between_any_two_writes() -> None:
    uids = ("canary", "rest", POLICY)

    async def run_uninterrupted(world: World) -> tuple[int, list[str]]:
        await two_drivers(world)
        role = await world.lead()
        names = sorted(name for _, _, name in world.written if name not in uids)
        return role.transport.writes, [_plain(name) for name in names]

    writes, names = play(run_uninterrupted)
    assert writes >= 13

    async def run_cut(world: World, after: int) -> None:
        await two_drivers(world)
        role = world.start(cut_after=after)
        await world.until(lambda: _cut(role.transport))
        await role.kill()
        await world.lead()
        written = await written_state(world)
        assert sorted(_plain(name) for name in written["daemon_sets"]) == [
            name for name in names if _is_daemon(name)
        ]
        assert written["owners"] == {"a": "rest", "b": "canary"}
        assert set(written["states"].values()) == {"notReady"}
        # Each object but the statuses was written once, by either process.
        repeated = [_plain(name) for _, _, name in world.written if name not in uids]
        assert sorted(repeated) == names

    for after in range(writes):
        play(lambda world, after=after: run_cut(world, after))


async def _cut(wire: Any) -> bool:
    return wire.cut.is_set()


def _plain(name: str) -> str:
    """Return the name without the digest: the uids of policies differ from run to run."""
    return DRIVER_PREFIX if is_driver(name) else name


def _is_daemon(name: str) -> bool:
    return name in AGENTS or name == DRIVER_PREFIX
