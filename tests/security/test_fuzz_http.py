"""Random requests to the HTTP server, while some clients hold connections: the next is served."""

import asyncio
import gc
import os
import random
from contextlib import suppress
from typing import Any, Final

from structlog.testing import capture_logs

from libs.runtime.http import MAX_CONNECTIONS, MAX_HEAD, HttpServer, HttpSettings, Page
from tests.security.fuzz_messages import FUZZ_SEEDS

LOOPBACK: Final = HttpSettings(host="127.0.0.1", port=0)
REQUESTS: Final = 50 * int(os.environ.get(FUZZ_SEEDS, "8"))
GOOD: Final = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n"


def mutated(random: random.Random) -> bytes:
    """Return a request of which parts are repeated, replaced, left out or made very long."""
    request = bytearray(GOOD)
    for _ in range(random.randint(0, 6)):
        at = random.randrange(len(request))
        length = random.choice((1, 2, 5, len(request)))
        piece = random.choice(
            (
                b"",
                random.randbytes(length),
                request[at : at + length] * random.choice((2, 100)),
                random.choice((b"\r\n", b"\r", b"\n", b"\0", b" ", b":", b"\xff")),
                random.choice(
                    (b"POST", b"CONNECT", b"http://a/", b"Content-Length: 9" + b"9" * 30)
                ),
                b"x" * 2 * MAX_HEAD,
                b"\xff\xfe",
            )
        )
        request[at : at + length] = piece
        request = request or bytearray(GOOD)
    return bytes(request)


async def test_random_requests_neither_crash_nor_occupy_the_server() -> None:
    rng = random.Random(1)
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    with capture_logs() as logs:
        async with HttpServer(LOOPBACK, {"/page": lambda: Page(b"x" * 200_000)}) as server:
            held: list[asyncio.StreamWriter] = []
            for _ in range(REQUESTS):
                reader, writer = await asyncio.open_connection(*server.address)
                with suppress(OSError):
                    writer.write(mutated(rng))
                    if rng.random() < 0.5:
                        held.append(writer)  # neither reads nor closes
                        continue
                    writer.write_eof()
                    response = await reader.read()
                    assert response == b"" or response.startswith(b"HTTP/1.1 "), response[:100]
                writer.close()
            assert len(held) > MAX_CONNECTIONS
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(GOOD)
            assert (await reader.read()).endswith(b"x" * 200_000)
            for each in (writer, *held):
                each.close()
    gc.collect()  # an unhandled exception of a task is reported when the task is destroyed
    assert not unhandled
    assert not logs
