"""How long a machine has had no GPUs: only time with current reports counts."""

from typing import Any

from msgspec.structs import replace

from libs.bus.port import StoredMessage
from libs.bus.reports import ReportCache
from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, make_env
from services.discovery.cluster.decide import ReportedFacts
from services.discovery.cluster.reports import ReportReader
from tests.support import in_virtual_time
from tests.unit.discovery.cluster.builders import NIC, SYSTEM, node

NODE = node()
WITHOUT_GPUS = Facts(pci=(NIC,))


def report_of(facts: Facts, **changed: str) -> StoredMessage:
    """Return a stored report of the node's discovery agent."""
    report = Report.of(
        facts, node="a", node_uid="u", boot_id="boot-1", component="discovery", at=1.0
    )
    subject = subjects.State(cluster="default", node="a", component="discovery", kind="facts")
    return StoredMessage(str(subject), 1, 1.0, encode(replace(report, **changed)))


@in_virtual_time
async def test_only_time_with_current_reports_counts(sim: Sim) -> None:
    server = LocalServer(env=make_env(clock=sim.clock))
    bus = server.connect(Identity(writer=Writer.DISCOVERY_CLUSTER))
    cache = ReportCache(bus=bus, clock=sim.clock, cluster="default")
    reader = ReportReader(cache, clock=sim.clock)

    def now(**reported: Any) -> ReportedFacts:
        return ReportedFacts(at=sim.clock.now(), **reported)

    assert reader.read(NODE) == now()
    cache.began(False)
    cache.received(report_of(WITHOUT_GPUS))
    cache.caught_up()
    assert reader.read(NODE) == now(facts=WITHOUT_GPUS, without_gpus=0.0)
    await sim.clock.sleep(100)
    assert reader.read(NODE).without_gpus == 100.0
    cache.lost()
    await sim.clock.sleep(500)
    assert reader.read(NODE).without_gpus == 0.0
    cache.began(False)
    cache.received(report_of(WITHOUT_GPUS))
    cache.caught_up()
    assert reader.read(NODE).without_gpus == 100.0
    cache.received(report_of(SYSTEM))
    assert reader.read(NODE) == now(facts=SYSTEM)
    cache.received(report_of(WITHOUT_GPUS))
    assert reader.read(NODE).without_gpus == 0.0
    await sim.clock.sleep(50)
    reader.forget("a")
    assert reader.read(NODE).without_gpus == 0.0
    for changed in ({"boot_id": "boot-0"}, {"node_uid": "v"}):
        cache.received(report_of(WITHOUT_GPUS, **changed))
        assert reader.read(NODE) == now()
