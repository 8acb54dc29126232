"""Since when a machine has had no GPUs, as far as anybody was heard meanwhile."""

import msgspec

from libs.bus.port import StoredMessage
from libs.bus.reports import ReportCache
from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, make_env, run
from services.discovery.cluster.decide import ReportedFacts
from services.discovery.cluster.reports import ReportReader
from tests.unit.discovery.cluster.builders import NIC, SYSTEM, node

NODE = node()
GONE = Facts(pci=(NIC,))


def report_of(facts: Facts, **changed: str) -> StoredMessage:
    """By the discovery agent of the node."""
    report = Report.of(
        facts, node="a", node_uid="u", boot_id="boot-1", component="discovery", at=1.0
    )
    at = subjects.State(cluster="default", node="a", component="discovery", kind="facts")
    return StoredMessage(str(at), 1, 1.0, encode(msgspec.structs.replace(report, **changed)))


def test_only_time_with_current_reports_counts() -> None:
    async def story(sim: Sim) -> None:
        server = LocalServer(env=make_env(clock=sim.clock))
        bus = server.connect(Identity(writer=Writer.DISCOVERY_CLUSTER))
        mirror = ReportCache(bus=bus, clock=sim.clock, cluster="default")
        hearing = ReportReader(mirror, clock=sim.clock)
        assert hearing.read(NODE) == ReportedFacts()
        mirror.began()
        mirror.received(report_of(GONE))
        mirror.caught_up()
        assert hearing.read(NODE) == ReportedFacts(facts=GONE, without_gpus=0.0)
        await sim.clock.sleep(100)
        assert hearing.read(NODE).without_gpus == 100.0
        mirror.lost()
        await sim.clock.sleep(500)
        assert hearing.read(NODE).without_gpus == 0.0
        mirror.began()
        mirror.received(report_of(GONE))
        mirror.caught_up()
        assert hearing.read(NODE).without_gpus == 100.0
        mirror.received(report_of(SYSTEM))
        assert hearing.read(NODE) == ReportedFacts(facts=SYSTEM)
        mirror.received(report_of(GONE))
        assert hearing.read(NODE).without_gpus == 0.0
        await sim.clock.sleep(50)
        hearing.forget("a")
        assert hearing.read(NODE).without_gpus == 0.0
        for changed in ({"boot_id": "boot-0"}, {"node_uid": "v"}):
            mirror.received(report_of(GONE, **changed))
            assert hearing.read(NODE) == ReportedFacts()

    run(story, seed=1)
