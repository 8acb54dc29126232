"""Run the page until it is interrupted."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from libs.ctl.cluster import Cluster, open_cluster
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.follow.kubernetes import make_env
from libs.ctl.options import Access
from libs.ctl.web.board import Board, Encoder
from libs.ctl.web.feed import PageFeed
from libs.ctl.web.server import EVERY_ADDRESS, PageServer, is_loopback, serve
from libs.ctl.web.story import encode_story, gather_story
from libs.runtime.env import Env

_STORIES_AT_ONCE: Final = 4
_WIDE_OPEN: Final = "It has no sign-in: whoever reaches this address can read it."
_OTHER_NAMES: Final = "Browsers elsewhere are answered at the names that --allow-host gives."


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A page that is served."""

    address: str
    feed: asyncio.Task[None]
    """Follows the cluster; it ends only by an error that nothing expects."""


async def run_web(access: Access, *, host: str, port: int, hosts: Sequence[str]) -> None:
    """Serve the page until SIGTERM or Ctrl-C."""
    if not host:  # would be every address
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            "--host is empty: give an address of this machine, or 0.0.0.0 for all",
        )
    async with serve_page(access, host=host, port=port, hosts=hosts) as served:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        print(f"The page is at {served.address} until Ctrl-C.", flush=True)
        if not is_loopback(host):
            print(_WIDE_OPEN, file=sys.stderr, flush=True)
            if host in EVERY_ADDRESS:
                print(_OTHER_NAMES, file=sys.stderr, flush=True)
        waiting = asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait({waiting, served.feed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if served.feed.done():
            served.feed.result()


@asynccontextmanager
async def serve_page(
    access: Access, *, host: str, port: int, hosts: Sequence[str]
) -> AsyncGenerator[Served]:
    """Follow the cluster and serve the page. Fail if there is no cluster."""
    env = make_env()
    board = Board()
    async with open_cluster(access) as cluster:
        await cluster.rollouts()  # one clear line if it is not reachable, or Sluice is not there
        page = _Page(access, cluster, board, env=env)
        names = hosts if is_loopback(host) or host in EVERY_ADDRESS else (*hosts, host)
        server = PageServer(
            push=page.push, tell=page.tell, on_change=board.on_change, hosts=frozenset(names)
        )
        async with serve(server, host, port) as address:
            feed = asyncio.create_task(page.feed.run())
            try:
                yield Served(address=address, feed=feed)
            finally:
                feed.cancel()
                await asyncio.wait({feed})


class _Page:
    """What browsers are sent: changes of the board, and the story of a node when one asks."""

    def __init__(self, access: Access, cluster: Cluster, board: Board, *, env: Env) -> None:
        self._cluster = cluster
        self._board = board
        self._clock = env.clock
        self._encoder = Encoder(board)
        self._stories = asyncio.Semaphore(_STORIES_AT_ONCE)
        self.feed = PageFeed(access, cluster, board, env=env)

    def push(self, revision: int) -> tuple[int, bytes]:
        """Return the board's revision, and what has changed since an earlier one."""
        sources = self.feed.sources()
        data = self._encoder.since(revision, at=self._clock.now(), sources=sources)
        return self._board.revision, data

    async def tell(self, name: str) -> bytes:
        """Return the story of a node."""
        kubernetes = self.feed.kubernetes
        if kubernetes.nodes.cache.get(name) is None:
            raise Failure(ExitCode.NOT_FOUND, f"there is no Node {name!r}")
        async with self._stories:
            story = await gather_story(
                self._cluster,
                name,
                now=self._clock.now(),
                devices=kubernetes.devices.names_of(name),
                scheduler=self.feed.events.scheduler,
                why_away=self.feed.why_away,
                happened=self.feed.happened(name),
            )
        return encode_story(story)
