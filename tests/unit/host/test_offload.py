import threading

import pytest

from libs.host.machine import InlineOffload, ThreadOffload


def raising() -> None:
    raise LookupError("gone")


async def test_inline_is_done_on_the_spot() -> None:
    here = threading.current_thread()
    assert await InlineOffload().do(threading.current_thread) is here
    with pytest.raises(LookupError, match="gone"):
        await InlineOffload().do(raising)


async def test_threads_do_it_elsewhere() -> None:
    async with ThreadOffload("disk") as threads:
        there = await threads.do(threading.current_thread)
        assert there is not threading.current_thread()
        assert there.name.startswith("disk")
        with pytest.raises(LookupError, match="gone"):
            await threads.do(raising)
    there.join()
