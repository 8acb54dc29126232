"""A program whose journal shows the order of all its steps.

As a script it prints its journal, so that two processes can be compared.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from libs.testing.simulation import Sim, run


class ManyTasks:
    """Tasks that are awaited, cancelled and dropped in sets."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self.journal: list[str] = []

    def write(self, what: str) -> None:
        """With the virtual time, and the ids of the run."""
        self.journal.append(f"{self._sim.clock.now():.6f} {self._sim.ids.new()[:8]} {what}")

    async def run(self) -> list[str]:
        await self._cancelled_group()
        await self._waited_set()
        await self._completed_set()
        await self._gathered()
        await self._set_of_futures()
        await self._dropped_generator()
        return self.journal

    async def _worker(self, name: str, seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.write(f"{name} cancelled")
            raise
        self.write(f"{name} done")
        return name

    async def _cancelled_group(self) -> None:
        async def fail() -> None:
            await asyncio.sleep(0.5)
            raise ValueError("enough")

        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(self._worker(f"group {number}", 1.0))
                group.create_task(fail())

    async def _waited_set(self) -> None:
        draw = self._sim.random_for("waited")
        tasks = {
            asyncio.create_task(self._worker(f"waited {number}", draw.choice([1.0, 2.0])))
            for number in range(50)
        }
        done, pending = await asyncio.wait(tasks, timeout=1.5)
        for task in done:
            self.write(f"in done: {task.result()}")
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _completed_set(self) -> None:
        tasks = {asyncio.create_task(self._worker(f"first {number}", 1.0)) for number in range(50)}
        for task in asyncio.as_completed(tasks):
            self.write(f"completed {await task}")

    async def _gathered(self) -> None:
        tasks = {asyncio.create_task(self._worker(f"all {number}", 1.0)) for number in range(50)}
        self.write(" ".join(await asyncio.gather(*tasks)))

    async def _set_of_futures(self) -> None:
        loop = asyncio.get_running_loop()
        futures = {loop.create_future(): number for number in range(50)}
        for future in set(futures):
            future.set_result(None)
            self.write(f"future {futures[future]}")

    async def _dropped_generator(self) -> None:
        """Abandon a generator in a reference cycle."""

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                self.write("generator closed")

        async def abandon() -> None:
            cycle: list[object] = []
            generator = numbers()
            cycle.extend((generator, cycle))
            await anext(generator)

        await abandon()
        heap: list[list[int]] = []
        for step in range(100):
            # Objects enough for the collector of a plain interpreter to begin by itself.
            heap.extend([number] for number in range(20))
            await asyncio.sleep(0.001)
            self.write(f"step {step} {len(heap)}")


async def main(sim: Sim) -> list[str]:
    return await ManyTasks(sim).run()


if __name__ == "__main__":
    junk = [[bytearray(size * 7)] for size in range(int(sys.argv[2]))]
    print("\n".join(run(main, seed=int(sys.argv[1]))))  # noqa: T201
