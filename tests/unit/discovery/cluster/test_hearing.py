"""Since when a machine has had no GPUs, as far as anybody was heard meanwhile."""

import random

import msgspec

from libs.bus.mirror import Mirror
from libs.bus.port import Stored
from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report
from libs.testing.bus import LocalServer
from libs.testing.loop import Sim, run
from services.discovery.cluster.deciding import Told
from services.discovery.cluster.hearing import Hearing
from tests.unit.discovery.cluster.making import NIC, SYSTEM, node

NODE = node()
GONE = Facts(pci=(NIC,))


def said(facts: Facts, **changed: str) -> Stored:
    """By the discovery agent of the node."""
    report = Report.of(
        facts, node="a", node_uid="u", boot_id="boot-1", component="discovery", at=1.0
    )
    at = subjects.State(cluster="default", node="a", component="discovery", kind="facts")
    return Stored(str(at), 1, 1.0, encode(msgspec.structs.replace(report, **changed)))


def test_only_time_in_which_it_was_heard_counts() -> None:
    async def story(sim: Sim) -> None:
        server = LocalServer(clock=sim.clock, random=random.Random(1))
        bus = server.connect(Identity(writer=Writer.DISCOVERY_CLUSTER))
        mirror = Mirror(bus=bus, clock=sim.clock, cluster="default")
        hearing = Hearing(mirror, clock=sim.clock)
        assert hearing.told(NODE) == Told()
        mirror.began()
        mirror.received(said(GONE))
        mirror.caught_up()
        assert hearing.told(NODE) == Told(facts=GONE, without_gpus=0.0)
        await sim.clock.sleep(100)
        assert hearing.told(NODE).without_gpus == 100.0
        mirror.lost()
        await sim.clock.sleep(500)
        assert hearing.told(NODE).without_gpus == 0.0
        mirror.began()
        mirror.received(said(GONE))
        mirror.caught_up()
        assert hearing.told(NODE).without_gpus == 100.0
        mirror.received(said(SYSTEM))
        assert hearing.told(NODE) == Told(facts=SYSTEM)
        mirror.received(said(GONE))
        assert hearing.told(NODE).without_gpus == 0.0
        await sim.clock.sleep(50)
        hearing.forget("a")
        assert hearing.told(NODE).without_gpus == 0.0
        for changed in ({"boot_id": "boot-0"}, {"node_uid": "v"}):
            mirror.received(said(GONE, **changed))
            assert hearing.told(NODE) == Told()

    run(story, seed=1)
