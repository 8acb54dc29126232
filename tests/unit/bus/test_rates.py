"""How many messages of a sender are taken, in virtual time."""

from structlog.testing import capture_logs

from libs.bus.rates import REMEMBERED, WARN_PERIOD, WINDOW, SenderRates
from libs.testing.simulation import Sim, run
from tests.support import in_virtual_time


@in_virtual_time
async def test_each_sender_has_its_own_share_of_each_second(sim: Sim) -> None:
    rates = SenderRates(sim.clock, most=3)
    for _ in range(2):
        flood = [rates.admits(b"flood") for _ in range(1_000)]
        assert flood == [True] * 3 + [False] * 997
        assert rates.admits(b"other")
        await sim.clock.sleep(WINDOW)
    assert rates.admits(b"flood")
    assert rates.dropped == 2 * 997


def test_senders_that_are_too_fast_are_named_with_their_rate_once_a_minute() -> None:
    async def story(sim: Sim) -> None:
        rates = SenderRates(sim.clock, most=3)
        assert rates.fast == {}
        while sim.clock.monotonic() < WARN_PERIOD / 2:
            for _ in range(500):
                rates.admits(b"node-1")
            rates.admits("node-2")
            await sim.clock.sleep(WINDOW)
        assert rates.fast == {"node-1": 500.0}
        await sim.clock.sleep(WINDOW)
        assert rates.admits("node-2")
        assert rates.fast == {"node-1": 250.0}
        await sim.clock.sleep(WINDOW)
        assert rates.admits("node-2")
        assert rates.fast == {}
        assert rates.rate_of("node") == 250.0
        assert rates.rate_of("node-2") == 0.0
        await sim.clock.sleep(REMEMBERED)
        assert rates.rate_of("node") == 0.0

    with capture_logs() as logs:
        run(story, seed=1)
    (line,) = logs
    assert line["per_second"] == {"node-1": 500}
    assert line["senders"] == 1
