"""Reports are stored until acknowledged; results in order, the newest of all others."""

import pytest

from libs.bus.reporter import REPEAT, Reporter
from libs.contracts import subjects
from libs.contracts.commands import Order
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.message import decode
from libs.contracts.reports import Holders, Outcome, Report, Result, StateBody, StateKind, Usage
from libs.contracts.subjects import STATE
from libs.runtime.tasks import Tasks
from libs.testing.bus import BusFaults
from libs.testing.simulation import Sim, make_env, run
from tests.unit.bus.command_world import AGENT, BOOT, NODE, UID, World, in_world, world_of


def result(op: int) -> Result:
    return Result(
        epoch=1, token=1, op=op, command="swap", outcome=Outcome.DONE, finished=1.8e9 + op
    )


class RunningReporter:
    """A reporter that runs; it ends with the world's agents."""

    def __init__(self, world: World) -> None:
        self.bus = world.server.connect(AGENT)
        self.reporter = Reporter(
            bus=self.bus,
            env=make_env(clock=world.clock, random=world.sim.random_for("reporter")),
            node_uid=UID,
            boot_id=BOOT,
        )
        self.tasks = Tasks("reporter", failed=world.failures.append)
        self.tasks.forever("reporter", self.reporter.run())

    async def __aenter__(self) -> Reporter:
        return self.reporter

    async def __aexit__(self, *_: object) -> None:
        self.bus.kill()
        await self.tasks.close()


@in_world
async def test_the_last_report_of_each_kind_is_stored(world: World) -> None:
    async with RunningReporter(world) as reporter:
        reporter.report(Usage(host_processes=3))
        await reporter.flush()
        subject = subjects.State(
            cluster="default", node=NODE, component=Writer.DRIVER, kind="usage"
        )
        stored = await world.writer.last(STATE, str(subject))
        assert stored is not None
        report = decode(Report, stored.data)
        assert (report.node_uid, report.boot_id, report.kind) == (UID, BOOT, StateKind.USAGE)
        assert report.at == world.sim.clock.now()
        assert report.open() == Usage(host_processes=3)


@in_world
async def test_the_answer_to_a_check_is_stored_for_its_asker(world: World) -> None:
    async with RunningReporter(world) as reporter:
        reporter.report(Holders(check="1"), asker="scheduler")
        reporter.report(Holders(check="2"), asker="driver-cluster")
        await reporter.flush(StateKind.HOLDERS)
        for asker, check in (("scheduler", "1"), ("driver-cluster", "2")):
            subject = subjects.State(
                cluster="default", node=NODE, component="driver", kind="holders", asker=asker
            )
            stored = await world.writer.last(STATE, str(subject))
            assert stored is not None
            assert decode(Report, stored.data).open() == Holders(check=check)


@in_world
async def test_results_queue_and_other_kinds_are_replaced(world: World) -> None:
    async with RunningReporter(world) as reporter:
        world.server.cut(AGENT)
        for number in (1, 2, 3):
            reporter.report(result(number))
            reporter.report(Usage(host_processes=number))
        await world.clock.sleep(600.0)
        assert world.reports == []
        assert "unreachable" in reporter.last_error
        world.server.restore(AGENT)
        await reporter.flush()
        assert world.results() == [result(1), result(2), result(3)]
        assert [body for body in world.bodies() if isinstance(body, Usage)][-1].host_processes == 3
        assert len(world.reports) <= 5  # the usage that was being sent is retried
        assert reporter.last_error == ""


@in_world
async def test_a_repeated_result_has_the_same_bytes(world: World) -> None:
    async with RunningReporter(world) as reporter:
        reporter.report(result(1))
        reporter.report(result(1))
        await reporter.flush()
        await world.clock.sleep(5.0)
        reporter.report(result(1))
        await reporter.flush()
        assert len(world.raw) == 2
        assert world.raw[0] == world.raw[1]


@pytest.mark.parametrize("seed", range(10))
def test_faults_neither_lose_nor_reorder_reports(seed: int) -> None:
    faults = BusFaults(call_lost=0.2, answer_lost=0.2, delayed=0.2, between_drops=(5.0, 30.0))

    async def main(sim: Sim) -> None:
        async with world_of(sim, faults) as world, RunningReporter(world) as reporter:
            for number in range(1, 30):
                reporter.report(result(number))
                await sim.clock.sleep(sim.random.uniform(0.0, 5.0))
            await reporter.flush()
            orders = [stored.order for stored in world.results()]
            assert orders == sorted(orders)
            assert set(orders) == {Order(1, number) for number in range(1, 30)}

    run(main, seed=seed)


@in_world
async def test_reports_are_repeated_periodically_and_after_reconnects(world: World) -> None:
    async with RunningReporter(world) as reporter:
        bodies: list[StateBody] = [Facts(runtime="containerd 2.0"), result(1)]
        for body in bodies:
            reporter.report(body)
        await reporter.flush()
        world.server.lose_stream(STATE, remade=True)
        await world.clock.sleep(1.3 * REPEAT)
        assert world.bodies() == bodies * 2
        world.server.cut(AGENT)
        world.server.lose_stream(STATE, remade=True)
        world.server.restore(AGENT)
        await world.clock.sleep(5.0)
        assert world.bodies() == bodies * 3


@in_world
async def test_one_kind_can_be_flushed(world: World) -> None:
    async with RunningReporter(world) as reporter:
        await reporter.flush(StateKind.RESULT)
        world.server.cut(AGENT)
        reporter.report(Usage())
        await reporter.flush(StateKind.RESULT)
        assert world.reports == []
        world.server.restore(AGENT)
        await reporter.flush()
        assert world.bodies() == [Usage()]
