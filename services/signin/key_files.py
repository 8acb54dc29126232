"""The pairs of keys that open requests and sign answers, from files that are read again.

The pair that opens a request signs its answer. So both keys are replaced without an interruption:
give the new pair as the next one, then change the server's configuration, then drop the old pair.
"""

import asyncio
from enum import Enum, auto
from pathlib import Path
from typing import Final

import msgspec

from libs.bus.callout import CalloutKeys, OtherKey, SignInRequest, TooOld, Unreadable
from libs.bus.keys import NotAKey
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal
from libs.runtime.logs import logger

POLL: Final = 5.0
"""Seconds between readings of the files."""
UNREADABLE: Final = 10
"""Requests in a row that no pair opens before the keys count as outdated."""
MAX_SEED: Final = 1024

_log = logger()


class SeedFiles(msgspec.Struct, frozen=True):
    """The files of a pair: the signing key's seed (SA…) and the curve key's (SX…)."""

    signing: str
    xkey: str


class _BadSeeds(Exception):
    pass


class _State(Enum):
    CURRENT = auto()
    OUTDATED = auto()
    """Many requests in a row cannot be opened; the files are being read again."""
    READ_AGAIN = auto()
    FAILED = auto()
    """After that, as many again could not be opened."""


class KeyFiles:
    """The pairs of the last successful reading."""

    def __init__(self, files: tuple[SeedFiles, ...], *, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._seeds: tuple[tuple[str, str], ...] = ()
        self._outdated = asyncio.Event()
        self._unreadable = 0
        self._state = _State.CURRENT
        self._problem = ""
        self.pairs: tuple[CalloutKeys, ...] = ()

    async def load(self) -> None:
        """Read the files for the first time; raise `Fatal` if they cannot be used."""
        try:
            await self._read()
        except _BadSeeds as error:
            raise Fatal(str(error)) from None

    async def run(self) -> None:
        """Read the files again every few seconds, and raise `Fatal` when the keys are outdated."""
        while True:
            await self._sleep()
            known = self._seeds
            try:
                await self._read()
            except _BadSeeds as error:
                if str(error) != self._problem:
                    _log.error("the keys of sign-in stay as they are", why=str(error))
                self._problem = str(error)
            else:
                self._problem = ""
            if self._state is _State.FAILED and self._seeds == known:
                raise Fatal(self._outdated_reason())
            if self._state in (_State.OUTDATED, _State.FAILED):
                self._state, self._unreadable = _State.READ_AGAIN, 0

    def open(
        self, data: bytes, *, server_xkey: str, max_age: float
    ) -> tuple[CalloutKeys, SignInRequest]:
        """Return the request and the pair that opened it; raise `Unreadable` or `TooOld`."""
        problem = OtherKey("there are no keys")
        for pair in self.pairs:
            try:
                request = pair.open(
                    data, server_xkey=server_xkey, now=self._clock.now(), max_age=max_age
                )
            except OtherKey as error:
                problem = error
            except (TooOld, Unreadable):
                self._state, self._unreadable = _State.CURRENT, 0
                raise
            else:
                self._state, self._unreadable = _State.CURRENT, 0
                return pair, request
        self._count_unreadable(problem)
        raise problem

    def _outdated_reason(self) -> str:
        keys = ", ".join(pair.public_xkey for pair in self.pairs)
        files = ", ".join(each.xkey for each in self._files)
        return (
            f"nats-server does not encrypt its requests to {keys}: put the seed of the key that its"
            f" configuration names (auth_callout, xkey) into {files}, and the signing seed beside"
            " it, or change the configuration"
        )

    def _count_unreadable(self, problem: OtherKey) -> None:
        self._unreadable += 1
        if self._unreadable < UNREADABLE or self._state in (_State.OUTDATED, _State.FAILED):
            return
        if self._state is _State.READ_AGAIN:
            self._state = _State.FAILED
        else:
            self._state = _State.OUTDATED
            _log.error(
                "no key opens the requests of nats-server: reading the key files again",
                why=str(problem),
                requests=UNREADABLE,
            )
        self._outdated.set()

    async def _sleep(self) -> None:
        """Wait for the next reading; less if the keys are outdated."""
        asleep = asyncio.create_task(self._clock.sleep(POLL), name="key files")
        outdated = asyncio.create_task(self._outdated.wait(), name="outdated keys")
        try:
            await asyncio.wait({asleep, outdated}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asleep.cancel()
            outdated.cancel()
            await asyncio.wait({asleep, outdated})
        self._outdated.clear()

    async def _read(self) -> None:
        seeds = await asyncio.to_thread(lambda: tuple(map(_read_pair, self._files)))
        if seeds == self._seeds:
            return
        pairs = tuple(map(_pair, seeds, self._files))
        self._seeds, self.pairs = seeds, pairs
        _log.info(
            "keys of sign-in read",
            signing=[pair.public_signing for pair in pairs],
            xkeys=[pair.public_xkey for pair in pairs],
        )


def _read_pair(files: SeedFiles) -> tuple[str, str]:
    return _read_seed(files.signing), _read_seed(files.xkey)


def _read_seed(path: str) -> str:
    try:
        with Path(path).open(encoding="ascii") as file:
            return file.read(MAX_SEED).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise _BadSeeds(
            f"cannot read the seed file {path}: {why}; mount it or configure another path"
        ) from None


def _pair(seeds: tuple[str, str], files: SeedFiles) -> CalloutKeys:
    try:
        return CalloutKeys.from_seeds(*seeds)
    except NotAKey as error:
        raise _BadSeeds(
            f"{files.signing} and {files.xkey} are not the seeds of a signing key (SA…) and a curve"
            f" key (SX…): {error}"
        ) from None
