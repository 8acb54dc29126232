"""The HTTP server: pages and errors of listening."""

import aiohttp
import pytest

from libs.runtime.fatal import Fatal
from libs.runtime.http import HttpServer, HttpSettings, Page


async def test_a_page_is_rendered_for_each_request():
    asked: list[int] = []

    def page() -> Page:
        asked.append(1)
        return Page(f"{len(asked)}".encode(), status=200 + len(asked))

    async with (
        HttpServer(HttpSettings(host="127.0.0.1", port=0), {"/page": page}) as server,
        aiohttp.ClientSession() as session,
    ):
        host, port = server.address
        assert host == "127.0.0.1"
        for number in (1, 2):
            async with session.get(f"http://{host}:{port}/page") as answer:
                assert (answer.status, await answer.text()) == (200 + number, str(number))
        async with session.post(f"http://{host}:{port}/page") as answer:
            assert answer.status == 405


async def test_a_port_in_use_is_fatal():
    async with HttpServer(HttpSettings(host="127.0.0.1", port=0), {}) as first:
        host, port = first.address
        second = HttpServer(HttpSettings(host=host, port=port), {})
        with pytest.raises(Fatal, match=f"HTTP cannot listen on 127.0.0.1:{port}: Address already"):
            await second.__aenter__()
    async with HttpServer(HttpSettings(host=host, port=port), {}) as third:
        assert third.address == (host, port), "the first gave its port back"


@pytest.mark.parametrize(
    ("host", "why"),
    [("192.0.2.1", "Cannot assign requested address"), ("a..b", ".*label empty or too long.*")],
)
async def test_an_unusable_host_is_fatal(host: str, why: str):
    server = HttpServer(HttpSettings(host=host, port=0), {})
    with pytest.raises(Fatal, match=f"HTTP cannot listen on {host}:0: {why}; choose another host"):
        await server.__aenter__()
