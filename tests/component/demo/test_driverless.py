"""Who is without a driver behind a shut gate, as an audit is told it."""

from math import inf, nextafter

import msgspec

from demo.driverless import READER, DriverlessNodes, observe_reports, with_report_delay
from libs.bus.permissions import permissions
from libs.bus.reporter import Reporter
from libs.contracts.facts import Facts, LoadedDriver
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Revision, Verb
from libs.contracts.reports import Report, Usage
from libs.contracts.streams import STREAMS
from libs.runtime.tasks import Tasks
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run

UP = Facts(driver=LoadedDriver(version="580.95.05"))
DOWN = Facts()


def said(node: str, body: Facts | Usage, *, by: Writer = Writer.DRIVER) -> Report:
    return Report.of(body, node=node, node_uid=f"uid-{node}", boot_id="b", component=by, at=1.0)


def without(witness: DriverlessNodes) -> list[tuple[float, set[str]]]:
    return [(one.since, set(one.driverless)) for one in witness.pool_facts]


def test_who_has_no_driver_is_named_until_it_has_one_again() -> None:
    witness = DriverlessNodes(pool="p", max_unavailable=1)
    for at, report in (
        (10.0, said("a", UP)),
        (11.0, said("b", UP)),
        (20.0, said("a", DOWN)),
        (21.0, said("a", DOWN)),
        (30.0, said("b", DOWN)),
        (40.0, said("a", UP)),
    ):
        witness.observe(report, at=at)
    assert without(witness) == [
        (0.0, set()),
        (20.0, {"uid-a"}),
        (30.0, {"uid-a", "uid-b"}),
        (40.0, {"uid-b"}),
    ]
    assert {(one.key, one.max_unavailable) for one in witness.pool_facts} == {("p", 1)}


def test_reports_of_others_and_of_other_things_are_no_news() -> None:
    witness = DriverlessNodes(pool="p", max_unavailable=1)
    witness.observe(said("b", UP), at=11.0)
    witness.observe(said("b", DOWN, by=Writer.DISCOVERY), at=12.0)
    witness.observe(said("b", Usage()), at=13.0)
    unreadable = msgspec.structs.replace(said("b", Usage()), body=msgspec.Raw(b"[]"))
    witness.observe(unreadable, at=14.0)
    assert without(witness) == [(0.0, set())]


def test_until_everybody_has_heard_a_report_it_is_in_doubt() -> None:
    witness = DriverlessNodes(pool="p", max_unavailable=1)
    for at, body in ((10.0, UP), (20.0, DOWN), (40.0, UP)):
        witness.observe(said("a", body), at=at)
    times = ((5.0, "Node"), (35.0, "Node"), (38.0, "Pod"), (45.0, "Node"))
    revisions = [
        Revision(
            revision=number, time=time, user="u", verb=Verb.UPDATE, code=200, kind=kind, name="n"
        )
        for number, (time, kind) in enumerate(times)
    ]
    a, nobody = frozenset({"uid-a"}), frozenset[str]()
    told = with_report_delay(witness.pool_facts, revisions)
    assert [(one.since, one.driverless, one.doubtful) for one in told] == [
        (0.0, nobody, nobody),
        (20.0, nobody, a),
        (22.0, a, nobody),
        (nextafter(35.0, inf), nobody, a),
        (40.0, nobody, a),
        (42.0, nobody, nobody),
    ]
    assert [one.since for one in with_report_delay(witness.pool_facts, revisions[:1])] == [
        *(0.0, nextafter(5.0, inf), 20.0, 22.0, 40.0, 42.0)
    ]


def test_it_hears_what_is_reported_on_the_bus() -> None:
    async def main(sim: Sim) -> list[tuple[float, set[str]]]:
        server = LocalServer(env=sim.env())
        scheduler = server.connect(Identity(writer=Writer.SCHEDULER))
        for stream in STREAMS:
            await scheduler.ensure(stream)
        agent = server.connect(Identity(writer=Writer.DRIVER, node="a"))
        reader = server.connect(
            Identity(writer=READER), permissions=permissions(Identity(writer=READER))
        )
        voice = Reporter(bus=agent, env=sim.env(), node_uid="uid-a", boot_id="b")
        tasks = Tasks("test", failed=lambda _: None)
        tasks.forever("voice", voice.run())
        witness = DriverlessNodes(pool="p", max_unavailable=1)
        began = sim.clock.now()
        async with observe_reports(witness, bus=reader, clock=sim.clock):
            for body in (UP, DOWN):
                voice.report(body)
                await sim.clock.sleep(100.0)
        await tasks.close()
        for bus in (scheduler, agent, reader):
            bus.kill()
        return [
            (one.since - began if one.since else 0.0, set(one.driverless))
            for one in witness.pool_facts
        ]

    first, second = run(main, seed=1)
    assert first == (0.0, set())
    assert second[1] == {"uid-a"}
    assert 100.0 <= second[0] < 101.0
