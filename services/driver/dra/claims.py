"""Answer the kubelet for claims: which CDI devices the pods of a claim get.

A claim that is prepared stays so until the kubelet says that no pod uses it: neither a command, nor
a GPU that failed, nor a restart changes that. A device is prepared for one claim at a time.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

import msgspec

from libs.host.cdi.published import GPU_KIND
from libs.host.dra.port import Claim, ClaimFailed, PreparedDevice
from libs.kube.client import Kube
from libs.kube.errors import KubeError, NotFound, UnknownKind
from libs.kube.views.claims import DeviceResult, ResourceClaim
from services.driver.dra.checkpoint import Checkpoint, PreparedClaim, PreparedResult
from services.driver.dra.devices import ClaimDevice
from services.driver.dra.resources import DRIVER, VERSIONS, claims

ENDS = "the policy gives GPUs by claims no more (spec.dra.enabled is false)"
READ_SECONDS = 5.0
"""The deadline of one read of a claim."""


class Usable(msgspec.Struct, frozen=True, kw_only=True):
    """The node's devices as they are now, by name, and why some cannot be used."""

    devices: Mapping[str, ClaimDevice] = {}
    reasons: Mapping[str, str] = {}
    """By UUID of the device."""
    withheld: str = "the GPUs have not been read yet"
    """Why no device can be used; empty if those without a reason can."""


class NodeClaims:
    """Prepares the claims of one node; its owner sets what is usable, and the API's version.

    `ends`: none but those that are prepared already, whose GPUs nobody looks after any more.
    """

    def __init__(
        self, kube: Kube, *, checkpoint: Checkpoint, pool: str, ends: bool = False
    ) -> None:
        self._kube = kube
        self._checkpoint = checkpoint
        self._pool = pool
        self._ends = ends
        self._lock = asyncio.Lock()
        self.usable = Usable()
        self.version = VERSIONS[0]

    async def prepare(self, claim: Claim) -> Sequence[PreparedDevice]:
        """Return the devices of a claim, which stay its own until `unprepare`.

        What is prepared is written before the answer: a process that dies after it would give the
        same GPU to another claim otherwise.
        """
        async with self._lock:
            prepared = self._checkpoint.prepared.get(claim.uid)
            if prepared is None and self._ends:
                raise ClaimFailed(ENDS)
            if prepared is None:
                prepared = await self._allocated(claim)
                await self._free_of_others(prepared)
                self._require_usable(prepared)
                await self._write(self._checkpoint.put(prepared))
            elif not self._ends:
                self._require_usable(prepared)
            return [result.answer for result in prepared.results]

    async def unprepare(self, claim: Claim) -> None:
        """Forget a claim that no pod uses any more."""
        async with self._lock:
            await self._write(self._checkpoint.remove(claim.uid))

    async def _allocated(self, claim: Claim) -> PreparedClaim:
        """Return what the claim is to get, as the API server has it."""
        found = await self._read(claim)
        if found is None:
            raise ClaimFailed(f"the claim {claim.namespace}/{claim.name} is not there any more")
        results = found.devices_of((DRIVER,))
        if not results:
            raise ClaimFailed(
                f"no device of this driver is allocated to the claim {claim.namespace}/{claim.name}"
            )
        return PreparedClaim(claim=claim, results=tuple(map(self._result, results)))

    def _result(self, result: DeviceResult) -> PreparedResult:
        if result.pool != self._pool:
            raise ClaimFailed(f"the device {result.device} is one of the pool {result.pool}")
        device = self.usable.devices.get(result.device)
        if device is None:
            why = self.usable.withheld or "it has no such device now"
            raise ClaimFailed(f"the device {result.device} of {self._pool} cannot be used: {why}")
        answer = PreparedDevice(
            request=result.request,
            pool=result.pool,
            device=result.device,
            cdi_devices=(f"{GPU_KIND}={device.uuid}",),
        )
        return PreparedResult(answer=answer, uuid=device.uuid, shared=bool(result.admin_access))

    def _require_usable(self, prepared: PreparedClaim) -> None:
        """Raise unless each device works: a pod on a failed GPU would fail later, unseen."""
        for result in prepared.results:
            why = self.usable.withheld or self.usable.reasons.get(result.uuid, "")
            if not why and all(
                device.uuid != result.uuid for device in self.usable.devices.values()
            ):
                why = "the machine does not have it now"
            if why:
                raise ClaimFailed(f"the device {result.answer.device} cannot be used: {why}")

    async def _free_of_others(self, wanted: PreparedClaim) -> None:
        """Raise unless no other claim has one of the devices."""
        uuids = {result.uuid for result in wanted.results if not result.shared}
        for other in list(self._checkpoint.prepared.values()):
            held = {result.uuid for result in other.results if not result.shared} & uuids
            if not held:
                continue
            # The kubelet may have lost its state, and never say that a claim is not used any more.
            found = await self._read(other.claim)
            if found is not None and found.devices_of((DRIVER,)):
                name = f"{other.claim.namespace}/{other.claim.name}"
                raise ClaimFailed(f"the device {min(held)} is prepared for the claim {name}")
            await self._write(self._checkpoint.remove(other.claim.uid))

    async def _read(self, claim: Claim) -> ResourceClaim | None:
        """Return the claim of that uid; None: there is none."""
        try:
            found = await self._kube.get(
                claims(self.version), claim.name, namespace=claim.namespace, within=READ_SECONDS
            )
        except UnknownKind as error:
            raise ClaimFailed(str(error)) from None
        except NotFound:
            return None
        except KubeError as error:
            raise ClaimFailed(
                f"the claim {claim.namespace}/{claim.name} cannot be read: {error}"
            ) from None
        return found if found.metadata.uid == claim.uid else None

    async def _write(self, change: Awaitable[None]) -> None:
        try:
            await change
        except OSError as error:
            raise ClaimFailed(f"the file of prepared claims cannot be written: {error}") from None
