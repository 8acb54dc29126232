"""Events and metrics of the fleet's verdicts, also of agents that lie."""

import pytest
from msgspec.structs import replace

from libs.contracts.events import EventKind, HealthEvent
from libs.contracts.health import GpuHealth, Health, HealthFinding, HealthRule, HealthState
from libs.contracts.identities import Writer
from libs.contracts.reports import StateKind
from libs.kube.resources import NODES
from services.telemetry.cluster.health import MAX_EVENTS
from tests.unit.telemetry.cluster.test_role import World, in_world

OK, DEGRADED, FAILED = HealthState.OK, HealthState.DEGRADED, HealthState.FAILED
HOT = HealthFinding(rule=HealthRule.THERMAL, state=DEGRADED, message="too hot")
OFF = HealthFinding(
    rule=HealthRule.XID, state=FAILED, message="XID 79: gone", remedy="reboot", xid=79
)
WELL = GpuHealth(uuid="GPU-0", index=0, pci="00000000:1B:00.0")


def ill(*findings: HealthFinding) -> GpuHealth:
    return GpuHealth(uuid="GPU-1", index=1, state=findings[0].state, findings=findings)


async def report(world: World, *gpus: GpuHealth, node: str = "a") -> None:
    await world.report(
        node,
        Health(gpus=gpus),
        writer=Writer.TELEMETRY,
        boot="boot",
        kind=StateKind.HEALTH,
    )
    await world.sleep(1.0)


async def told(world: World) -> list[tuple[str, str, bool]]:
    """Return rule, GPU and whether it fires, of each event."""
    bodies = [each.open() for each in await world.bus_events() if each.kind is EventKind.HEALTH]
    return [(each.rule, each.gpu, each.firing) for each in bodies if isinstance(each, HealthEvent)]


def counts(world: World) -> list[float | None]:
    return [world.value("sluice_gpu_health", state=state) for state in (OK, DEGRADED, FAILED)]


@in_world
async def test_each_change_is_one_event(world: World) -> None:
    await world.node("a")
    await world.lead()
    await report(world, WELL, ill(HOT))
    await report(world, WELL, ill(OFF, HOT))
    await report(world, WELL, ill(OFF, HOT))
    await report(world, WELL, WELL)
    assert await told(world) == [
        ("thermal", "GPU-1", True),
        ("xid", "GPU-1", True),
        ("xid", "GPU-1", False),
        ("thermal", "GPU-1", False),
    ]
    (first, *_) = [each for each in await world.bus_events() if each.kind is EventKind.HEALTH]
    assert (first.node, first.message) == ("a", "GPU GPU-1: degraded: too hot")


@in_world
async def test_two_replicas_tell_each_change_once_and_a_restart_tells_nothing_again(
    world: World,
) -> None:
    await world.node("a")
    await world.lead()
    await world.lead()
    await report(world, ill(OFF))
    await world.lead()
    await world.sleep(600.0)
    assert await told(world) == [("xid", "GPU-1", True)]


@in_world
async def test_what_changed_during_an_outage_of_the_bus_is_told_after_it(world: World) -> None:
    await world.node("a")
    await world.lead()
    await report(world, ill(OFF))
    world.bus.cut(world.role.bus.identity)
    await report(world, ill(HOT))
    await world.sleep(60.0)
    assert counts(world) == [0, 0, 1]
    world.bus.restore(world.role.bus.identity)
    await world.sleep(60.0)
    assert counts(world) == [0, 1, 0]
    assert await told(world) == [
        ("xid", "GPU-1", True),
        ("xid", "GPU-1", False),
        ("thermal", "GPU-1", True),
    ]


@in_world
async def test_gpus_are_counted_and_the_unhealthy_are_listed(world: World) -> None:
    await world.node("a")
    await world.node("b")
    await world.lead()
    assert counts(world) == [0, 0, 0]
    await report(world, WELL, ill(OFF, HOT))
    await report(world, WELL, node="b")
    assert counts(world) == [2, 0, 1]
    labels = {"node": "a", "gpu": "GPU-1", "rule": "thermal", "state": "degraded"}
    assert world.value("sluice_gpu_unhealthy", **labels) == 1
    assert world.names("sluice_gpu_unhealthy") == {"a"}


@in_world
async def test_a_node_that_is_gone_has_no_gpus(world: World) -> None:
    await world.node("a")
    await world.lead()
    await report(world, ill(OFF))
    assert counts(world) == [0, 0, 1]
    await world.remove(NODES, "a")
    await world.sleep(1.0)
    assert counts(world) == [0, 0, 0]
    await world.node("a")
    await world.sleep(1.0)
    assert counts(world) == [0, 0, 0]


@pytest.mark.parametrize(
    "gpus",
    [
        (replace(WELL, uuid='GPU-"} 1\nmetric'),),
        (replace(WELL, uuid="GPU-" + "x" * 4096),),
        (replace(WELL, pci="nonsense"),),
        (replace(WELL, state=HealthState("fine")),),
        (ill(replace(OFF, rule=HealthRule("luck"))),),
        (ill(replace(OFF, state=HealthState("fine"))),),
        (ill(*[replace(HOT, xid=number) for number in range(9)]),),
        (replace(WELL, index=2**53 - 1),),
        tuple(replace(WELL, index=index) for index in range(64)) * 3,
    ],
    ids=[
        *(
            "a uuid with a quote",
            "a long uuid",
            "no address",
            "an unknown state",
            "an unknown rule",
        ),
        *("a finding in no state", "many findings", "a large index", "many GPUs"),
    ],
)
@in_world
async def test_a_verdict_that_cannot_be_true_is_ignored(
    world: World, gpus: tuple[GpuHealth, ...]
) -> None:
    await world.node("a")
    await world.lead()
    await report(world, *gpus)
    assert counts(world) == [0, 0, 0]
    assert world.names("sluice_gpu_unhealthy") == set()
    assert await told(world) == []


@in_world
async def test_the_events_of_a_node_are_limited(world: World) -> None:
    await world.node("a")
    await world.node("b")
    await world.lead()
    for _ in range(MAX_EVENTS):
        await report(world, ill(OFF))
        await report(world, WELL)
    await report(world, ill(OFF), node="b")
    assert len(await told(world)) == MAX_EVENTS + 1
    assert world.value("sluice_gpu_health_unpublished_events_total") == MAX_EVENTS
    await world.sleep(3600.0)
    await report(world, ill(OFF))
    assert len(await told(world)) == MAX_EVENTS + 2


@in_world
async def test_the_text_of_an_event_is_one_line(world: World) -> None:
    await world.node("a")
    await world.lead()
    await report(world, ill(replace(HOT, message="a\nb\x1b[2J" + "x" * 9000)))
    (event,) = [each for each in await world.bus_events() if each.kind is EventKind.HEALTH]
    assert event.message.isprintable()
    assert len(event.message) < 400
