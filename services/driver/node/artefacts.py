"""Brings artefacts of host drivers to this machine: verified and unpacked, before it is drained.

The ConfigMap that names them is a folder of this pod, a file per key.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

from libs.host.artefacts import store
from libs.host.artefacts.members import ArtefactError
from libs.host.artefacts.paths import sendable
from libs.host.artefacts.store import Index, SourceFile
from libs.host.artefacts.system import library_folder
from libs.host.machine import Machine
from libs.host.tree import Tree
from libs.policy.artefacts import NO_ARTEFACTS, Artefacts, parse_artefacts
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

PATIENCE: Final = 7.0
"""Seconds in which a preflight check has to be answered, nearly."""

Outcome: TypeAlias = Index | ArtefactError | OSError

_log = logger()


class ArtefactKeeper:
    """Of one machine; brings one artefact at a time."""

    def __init__(self, *, machine: Machine, config_dir: str, clock: Clock) -> None:
        """`config_dir`: where the ConfigMap is; empty: no policy installs drivers on hosts."""
        self._machine = machine
        self._config_dir = config_dir
        self._clock = clock
        self._asked: dict[str, asyncio.Future[Outcome]] = {}
        """By digest."""
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        """Held while something is unpacked or removed."""

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for digest in tuple(self._asked):
                outcome = await self._outcome(digest)
                self._asked.pop(digest).set_result(outcome)

    async def bring(self, digest: str) -> Index:
        """Return what is in an artefact, when it is here. Raise `ArtefactError` or OSError.

        Who stops waiting does not stop the work, which others may wait for.
        """
        return _index(await asyncio.shield(self._ask(digest)))

    async def bring_soon(self, digest: str) -> Index | None:
        """Like `bring`; None where it is not here soon. It will be, if the work succeeds."""
        asked = self._ask(digest)
        patience = asyncio.ensure_future(self._clock.sleep(PATIENCE))
        try:
            await asyncio.wait((asked, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        return _index(asked.result()) if asked.done() else None

    def _ask(self, digest: str) -> "asyncio.Future[Outcome]":
        if digest not in self._asked:
            self._asked[digest] = asyncio.get_running_loop().create_future()
            self._changed.set()
        return self._asked[digest]

    async def _outcome(self, digest: str) -> Outcome:
        try:
            return await self._bring(digest)
        except (ArtefactError, OSError) as error:
            _log.warning("an artefact cannot be unpacked", artefact=digest, why=str(error))
            return error
        except Exception as error:  # noqa: BLE001 - no file may end the agent
            why = sendable(f"{type(error).__name__}: {error}")
            _log.exception("an artefact cannot be unpacked, unexpectedly", artefact=digest, why=why)
            return ArtefactError(f"unpacking {digest} failed unexpectedly: {why}")

    async def keep_only(self, wanted: Callable[[], Iterable[str]]) -> None:
        """Remove all other artefacts; what cannot be removed stays for the next time."""
        tree = self._machine.tree
        async with self._lock:
            try:
                await self._machine.offload.run(lambda: store.keep_only(tree, wanted()))
            except OSError as error:
                _log.warning("unpacked artefacts cannot be removed", why=str(error))

    async def _bring(self, digest: str) -> Index:
        async with self._lock:
            return await self._bring_alone(digest)

    async def _bring_alone(self, digest: str) -> Index:
        offload = self._machine.offload
        index = await offload.run(lambda: store.read_index(self._machine.tree, digest))
        if index is not None:
            return index
        _log.info("an artefact is being unpacked", artefact=digest)
        return await offload.run(lambda: self._stage(digest))

    def _stage(self, digest: str) -> Index:
        artefacts = read_artefacts(self._config_dir)
        found = artefacts.find(digest)
        if found is None:
            raise ArtefactError(
                f"no artefact with digest {digest} is named in {self._config_dir or 'a ConfigMap'}"
                " as this node has it; the kubelet takes a minute to bring a change"
            )
        sources = [
            SourceFile(path=f"{artefacts.folder}/{each.name}", kind=each.kind, sha256=each.sha256)
            for each in found.files
        ]
        tree = self._machine.tree
        folder = library_folder(tree, os.uname().machine)
        return store.stage(tree, digest, sources, libraries=folder)


def _index(outcome: Outcome) -> Index:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def read_artefacts(config_dir: str) -> Artefacts:
    """Return what the ConfigMap says, as the kubelet has mounted it."""
    folder = Path(config_dir)
    if not config_dir or not folder.is_dir():
        return NO_ARTEFACTS
    own = Tree(folder)
    keys = [name for name in own.names("/") if not name.startswith(".")]
    texts = {key: own.read_text(f"/{key}") or "" for key in keys}
    return parse_artefacts(texts)
