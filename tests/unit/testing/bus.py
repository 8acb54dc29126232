"""An in-process bus in virtual time, with one stream and two who use it."""

from collections.abc import Callable, Coroutine
from typing import Any

from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import Stream
from libs.testing.bus import BusFaults, LocalServer
from libs.testing.simulation import Sim, run

WRITER = Identity(writer=Writer.SCHEDULER)
READER = Identity(writer=Writer.CTL)
KEPT = Stream(
    name="KEPT",
    subjects=("kept.>",),
    description="what a test stores",
    per_subject=100_000,
    max_message=1024,
    max_consumers=16,
)


def with_bus(
    scenario: Callable[[Sim, LocalServer], Coroutine[Any, Any, None]],
    faults: BusFaults | None = None,
    *,
    seed: int = 7,
) -> None:
    async def main(sim: Sim) -> None:
        await scenario(sim, LocalServer(env=sim.env("bus"), faults=faults))

    run(main, seed=seed)
