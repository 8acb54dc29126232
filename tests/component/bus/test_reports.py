"""The report cache on both implementations."""

from libs.bus.port import Bus
from libs.bus.reports import IgnoredReport, ReportCache
from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report
from libs.contracts.subjects import STATE
from libs.runtime.clock import SystemClock
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

READER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.DRIVER, node="a.example")


def facts(machine: str, node: str = "a.example") -> bytes:
    report = Report.of(
        Facts(machine=machine),
        node=node,
        node_uid="uid",
        boot_id="boot",
        component="driver",
        at=1.0,
    )
    return encode(report)


async def write(bus: Bus, data: bytes, node: str = "a.example", kind: str = "facts") -> None:
    subject = subjects.State(cluster="default", node=node, component="driver", kind=kind)
    await bus.store(STATE, str(subject), data)


def cache_of(bus: Bus) -> ReportCache:
    return ReportCache(bus=bus, clock=SystemClock(), cluster="default")


def machines(cache: ReportCache) -> dict[str, str | None]:
    """Return the machine types of all nodes with facts."""
    found: dict[str, str | None] = {}
    for node in cache.nodes():
        report = cache.get(node, "driver", "facts")
        body = report.open() if report else None
        found[node] = body.machine if isinstance(body, Facts) else None
    return found


async def test_the_cache_holds_stored_and_new_reports(make_bus: MakeBus) -> None:
    reader, agent = await make_bus(READER), await make_bus(AGENT)
    await reader.ensure(STATE)
    await write(agent, facts("early"))
    async with cache_of(reader) as cache:
        await cache.synced()
        assert machines(cache) == {"a.example": "early"}
        assert cache.age == 0.0
        await write(agent, facts("late"))
        await write(agent, facts("other", "b"), "b")
        await eventually(lambda: machines(cache) == {"a.example": "late", "b": "other"})


async def test_a_thousand_nodes_are_read_at_once(make_bus: MakeBus) -> None:
    reader, agent = await make_bus(READER), await make_bus(AGENT)
    await reader.ensure(STATE)
    for index in range(1_000):
        node = f"node-{index}"
        await write(agent, facts(str(index), node), node)
    changes: list[str] = []
    cache = cache_of(reader)
    cache.on_change(lambda of, before, after: changes.append(of.node))
    async with cache:
        await cache.synced()
        assert machines(cache) == {f"node-{index}": str(index) for index in range(1_000)}
        assert len(changes) == 1_000


async def test_the_cache_is_current_again_after_an_outage(
    make_bus: MakeBus, control: ServerControl
) -> None:
    reader, agent = await make_bus(READER), await make_bus(AGENT)
    await reader.ensure(STATE)
    await write(agent, facts("one"))
    changes: list[str] = []
    cache = cache_of(reader)
    cache.on_change(lambda of, before, after: changes.append(of.node))
    async with cache:
        await cache.synced()
        await control.stop()
        await eventually(lambda: cache.age > 0.0)
        assert machines(cache) == {"a.example": "one"}
        await control.start()
        await eventually(lambda: agent.link.is_up)
        await write(agent, facts("two", "b"), "b")
        await eventually(lambda: cache.age == 0.0 and "b" in machines(cache))
        assert machines(cache) == {"a.example": "one", "b": "two"}
        assert changes == ["a.example", "b"]
        assert cache.stale_seconds > 0.0


async def test_reports_of_a_lost_stream_are_kept_and_repeated(
    make_bus: MakeBus, control: ServerControl
) -> None:
    reader, agent = await make_bus(READER), await make_bus(AGENT)
    await reader.ensure(STATE)
    await write(agent, facts("one"))
    async with cache_of(reader) as cache:
        await cache.synced()
        await control.lose(STATE)
        await eventually(lambda: cache.age > 0.0)
        await eventually(lambda: cache.age == 0.0 and agent.link.is_up)
        assert machines(cache) == {"a.example": "one"}
        await write(agent, facts("again"))
        await eventually(lambda: machines(cache) == {"a.example": "again"})


async def test_foreign_reports_are_ignored(make_bus: MakeBus) -> None:
    reader, agent = await make_bus(READER), await make_bus(AGENT)
    await reader.ensure(STATE)
    await write(agent, facts("one"))
    async with cache_of(reader) as cache:
        await cache.synced()
        await write(agent, facts("echo", "b"))
        # The stream keeps the last report only; one that is replaced may never be delivered.
        await eventually(lambda: cache.ignored[IgnoredReport.FOREIGN] == 1)
        await write(agent, b"\x00")
        await write(agent, facts("end", "b"), "b")
        await eventually(lambda: "b" in machines(cache))
        assert machines(cache) == {"a.example": "one", "b": "end"}
        assert cache.ignored == {IgnoredReport.FOREIGN: 1, IgnoredReport.UNREADABLE: 1}
