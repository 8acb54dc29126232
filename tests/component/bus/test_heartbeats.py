"""Heartbeats on both implementations."""

from libs.bus.heartbeats import MOST_BEATS, Heartbeat, HeartbeatMonitor
from libs.bus.port import Bus
from libs.bus.rates import WINDOW
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Beat
from libs.runtime.clock import SystemClock
from libs.runtime.tasks import Tasks
from libs.testing.simulation import make_env
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

READER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.VALIDATOR, node="a.example")


def heartbeat(bus: Bus, boot: str) -> Heartbeat:
    beat = Beat(
        node=bus.identity.node,
        node_uid="uid",
        boot_id=boot,
        component=bus.identity.writer,
        token=3,
        op=4,
    )
    return Heartbeat(bus=bus, env=make_env(), make_beat=lambda: beat)


async def test_beats_arrive_before_and_after_an_outage(
    make_bus: MakeBus, control: ServerControl
) -> None:
    reader, agent = await make_bus(READER), await make_bus(AGENT)
    tasks = Tasks("heartbeat", failed=lambda fatal: None)
    async with HeartbeatMonitor(bus=reader, clock=SystemClock(), cluster="default") as monitor:
        boots: list[str] = []
        monitor.on_change(lambda before, after: boots.append(after.boot_id))
        tasks.forever("one", heartbeat(agent, "one").run())
        await eventually(lambda: boots == ["one"])
        last = monitor.last("a.example", "validator")
        assert last is not None
        assert last.order == (3, 4)
        assert not monitor.is_silent("a.example", "validator")
        monitor.forget("a.example")
        await control.stop()
        await eventually(lambda: not agent.link.is_up and not reader.link.is_up)
        await control.start()
        await eventually(lambda: boots == ["one", "one"])
        assert tasks.running() == ["one"]
        await tasks.close()


async def test_a_new_boot_calls_watchers(make_bus: MakeBus) -> None:
    reader, agent = await make_bus(READER), await make_bus(AGENT)
    async with HeartbeatMonitor(bus=reader, clock=SystemClock(), cluster="default") as monitor:
        boots: list[tuple[str, str]] = []
        monitor.on_change(
            lambda before, after: boots.append((before.boot_id if before else "", after.boot_id))
        )
        for boot in ("one", "two"):
            tasks = Tasks("heartbeat", failed=lambda fatal: None)
            tasks.forever(boot, heartbeat(agent, boot).run())
            await eventually(lambda boot=boot: bool(boots) and boots[-1][1] == boot)
            await tasks.close()
        assert boots == [("", "one"), ("one", "two")]


async def test_a_sender_at_full_speed_is_read_ten_times_in_a_second_and_keeps_nobody_out(
    make_bus: MakeBus,
) -> None:
    reader, hostile, other = (
        await make_bus(READER),
        await make_bus(Identity(writer=Writer.VALIDATOR, node="hostile.example")),
        await make_bus(AGENT),
    )
    clock = SystemClock()
    async with HeartbeatMonitor(bus=reader, clock=clock, cluster="default") as monitor:
        decoded: list[str] = []
        monitor.on_change(lambda before, after: decoded.append(after.boot_id))
        subject = str(
            subjects.Beat(cluster="default", node="hostile.example", component="validator")
        )
        began = clock.monotonic()
        for number in range(3_000):
            boot = f"boot-{number}"  # each beat of a new boot calls the watchers
            data = encode(
                Beat(node="hostile.example", node_uid="u", boot_id=boot, component="validator")
            )
            await hostile.publish(subject, data)
        tasks = Tasks("heartbeat", failed=lambda fatal: None)
        tasks.forever("other", heartbeat(other, "other").run())
        await eventually(lambda: "other" in decoded)
        await eventually(lambda: len(decoded) + monitor.rates.dropped == 3_001)
        windows = (clock.monotonic() - began) // WINDOW + 2
        assert len(decoded) <= MOST_BEATS * windows + 1
        await tasks.close()
