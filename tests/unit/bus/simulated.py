"""Tests that run in virtual time."""

import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

from libs.testing.simulation import Sim, run

W = TypeVar("W")
P = ParamSpec("P")


def in_simulation(
    enter: Callable[[Sim], AbstractAsyncContextManager[W]], *, seed: int = 7
) -> Callable[[Callable[Concatenate[W, P], Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Run a test in virtual time; its first argument is what `enter` yields."""

    def decorate(
        test: Callable[Concatenate[W, P], Coroutine[Any, Any, None]],
    ) -> Callable[P, None]:
        def simulated(*args: P.args, **kwargs: P.kwargs) -> None:
            async def main(sim: Sim) -> None:
                async with enter(sim) as world:
                    await test(world, *args, **kwargs)

            run(main, seed=seed)

        # pytest must not look for a fixture of the first argument.
        signature = inspect.signature(test)
        others = list(signature.parameters.values())[1:]
        simulated.__dict__["__signature__"] = signature.replace(parameters=others)
        return simulated

    return decorate
