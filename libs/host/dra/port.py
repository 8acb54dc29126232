"""What the kubelet asks a driver of dynamic resource allocation, and what it is answered."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceClaim, as the kubelet names it."""

    namespace: str
    name: str
    uid: str


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that the containers of a claim's pods get."""

    request: str
    """The request of the claim that it is for."""
    pool: str
    device: str
    cdi_devices: tuple[str, ...]
    """Names such as `nvidia.com/gpu=GPU-…`."""


class ClaimFailed(Exception):
    """A claim cannot be prepared, or the opposite. The text is the reason, for people."""


class Claims(Protocol):
    """Answers for each claim. The kubelet repeats a question that failed."""

    async def prepare(self, claim: Claim) -> Sequence[PreparedDevice]:
        """Return the devices of a claim, or raise `ClaimFailed`."""
        ...

    async def unprepare(self, claim: Claim) -> None:
        """Forget a claim that no pod uses any more, or raise `ClaimFailed`."""
        ...
