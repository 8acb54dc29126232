"""A page that is rendered at most once a second."""

import asyncio

from libs.runtime.http import CachedPage, Page
from tests.unit.runtime.virtual_time import LoopClock, in_virtual_time


@in_virtual_time()
async def test_a_cached_page_is_rendered_at_most_once_a_second():
    rendered: list[int] = []

    def render() -> Page:
        rendered.append(1)
        return Page(f"{len(rendered)}".encode())

    page = CachedPage(render, LoopClock())
    assert [page().body for _ in range(3)] == [b"1"] * 3
    await asyncio.sleep(0.9)
    assert page().body == b"1"
    await asyncio.sleep(0.2)
    assert page().body == b"2"
