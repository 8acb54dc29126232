"""What all agents that hold a node's GPUs open have in common: they let go of them on command."""

from collections.abc import Awaitable, Callable

from libs.bus.commands.executor import OpDone, OpFailed
from libs.host.gpus.port import GpusUnavailable


async def let_go(
    release: Awaitable[None], afterwards: Callable[[], Awaitable[None]] | None = None
) -> OpDone | OpFailed:
    """Release the GPUs, and do what follows whether or not that succeeds.

    An agent that keeps a device open says so: the driver could not be unloaded, and nobody else
    knows why.
    """
    try:
        await release
    except GpusUnavailable as error:
        return OpFailed("devices-open", str(error))
    finally:
        if afterwards is not None:
            await afterwards()
    return OpDone()
