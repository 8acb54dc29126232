"""Invariants of commands, reports and events on a real server with faults.

Thousands of runs use the in-process bus; these few show the same over sockets, processes and files.
A failure names its seed.
"""

import asyncio
from pathlib import Path

import pytest

from libs.contracts.commands import Order
from tests.component.bus.nats_campaign import NatsCampaign

CONCURRENT = 4
DEAR = pytest.mark.soak("more seeds of the campaign; each run plays the first ones")


@pytest.mark.dear("four real servers with an agent each, which are killed and cut off")
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=DEAR) for first in range(CONCURRENT, 16, CONCURRENT))]
)
async def test_campaign(first: int, tmp_path: Path) -> None:
    """Campaigns run concurrently, because each mostly waits for a server or a connection."""
    runs = [NatsCampaign(seed, tmp_path) for seed in range(first, first + CONCURRENT)]
    ends = await asyncio.gather(*(run.play() for run in runs), return_exceptions=True)
    for seed, (run, end) in enumerate(zip(runs, ends, strict=True), first):
        try:
            if end is not None:
                raise end
            judge(run)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def judge(run: NatsCampaign) -> None:
    taken = [result.order for result in run.taken]
    assert taken == sorted(set(taken)), "a result was observed twice or out of order"
    last = Order(0, 0)
    bodies: dict[Order, object] = {}
    epoch = 0
    for command in run.effects:
        assert command.order >= last, "an effect of an older op came later"
        assert command.epoch >= epoch or command.order == last, "an effect of an older epoch"
        last, epoch = command.order, max(epoch, command.epoch)
        first = bodies.setdefault(command.order, (command.kind, bytes(command.body)))
        assert first == (command.kind, bytes(command.body)), "two commands ran as one op"
    assert run.owed <= set(run.recorded), "an acknowledged event is lost"
    assert len(run.owed) > 0
    assert run.last is not None
    assert last == run.last.order, "the newest command did not win"
