"""Wait for a condition in real time, and turn async functions into tests in virtual time."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from libs.testing.simulation import run

W = TypeVar("W")
Story = Callable[[W], Coroutine[Any, Any, None]]


async def eventually(
    check: Callable[[], bool | Awaitable[bool]], *, within: float = 60.0, every: float = 0.005
) -> None:
    """Wait until `check` holds, or fail."""
    async with asyncio.timeout(within):
        while True:
            holds = check()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(every)


def played_by(
    play: Callable[[Story[W]], object],
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Return a decorator that turns an async function of a world into a test run by `play`.

    The other parameters of the function remain those of the test: fixtures and parametrized values.
    """

    def decorate(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        def test(**parameters: Any) -> None:
            play(lambda world: story(world, **parameters))

        decorated: Any = functools.update_wrapper(test, story)
        del decorated.__wrapped__
        signature = inspect.signature(story)
        _, *others = signature.parameters.values()
        decorated.__signature__ = signature.replace(parameters=others)
        return decorated

    return decorate


in_virtual_time = played_by(lambda story: run(story, seed=1))
"""Turns an async function of a `Sim` into a test."""
