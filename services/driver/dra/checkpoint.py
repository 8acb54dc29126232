"""What is prepared, in a file that outlives the process and the machine's boots."""

from collections.abc import Mapping

import msgspec

from libs.host.dra.port import Claim, PreparedDevice
from libs.host.machine import Offload
from libs.host.tree import Tree, Unreadable

PATH = "/claims.json"


class PreparedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a prepared claim."""

    answer: PreparedDevice
    uuid: str
    shared: bool = False
    """Whether it is for monitoring, so that another claim may have it too."""


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with the devices that its pods have."""

    claim: Claim
    results: tuple[PreparedResult, ...]


Prepared = Mapping[str, PreparedClaim]
"""By uid of the claim."""


class BadCheckpoint(Exception):
    """The file cannot be read. The text says which, and what to do."""


class Checkpoint:
    """The file below `tree`, which is written whole or not at all."""

    def __init__(self, tree: Tree, offload: Offload) -> None:
        self._tree = tree
        self._offload = offload
        self.prepared: Prepared = {}

    async def load(self) -> None:
        """Read the file, or raise `BadCheckpoint`: nothing is prepared over what is not known."""
        try:
            data = await self._offload.run(lambda: self._tree.data(PATH))
            if data is not None:
                self.prepared = msgspec.json.decode(data, type=dict[str, PreparedClaim])
        except (Unreadable, msgspec.DecodeError) as error:
            raise BadCheckpoint(
                f"the prepared claims in {self._tree.root}{PATH} cannot be read ({error}): drain"
                " the node, remove the file, and restart this pod"
            ) from None

    async def put(self, claim: PreparedClaim) -> None:
        await self._store({**self.prepared, claim.claim.uid: claim})

    async def remove(self, uid: str) -> None:
        if uid in self.prepared:
            await self._store({each: kept for each, kept in self.prepared.items() if each != uid})

    async def _store(self, prepared: Prepared) -> None:
        data = msgspec.json.encode(prepared)
        await self._offload.run(lambda: self._tree.write(PATH, data, mode=0o600))
        self.prepared = prepared
