import threading

import pytest

from libs.host.machine import InlineOffload, ThreadOffload


def raising() -> None:
    raise LookupError("gone")


async def test_inline_offload_runs_in_the_calling_thread() -> None:
    caller = threading.current_thread()
    assert await InlineOffload().run(threading.current_thread) is caller
    with pytest.raises(LookupError, match="gone"):
        await InlineOffload().run(raising)


async def test_thread_offload_runs_in_its_own_threads() -> None:
    async with ThreadOffload("disk") as threads:
        worker = await threads.run(threading.current_thread)
        assert worker is not threading.current_thread()
        assert worker.name.startswith("disk")
        with pytest.raises(LookupError, match="gone"):
            await threads.run(raising)
    worker.join()
