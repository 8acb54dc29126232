"""Lease objects: reads and writes of our own, their expiry, and the detection of a GPU Operator.

Each request has 3 s; every write names the revision it was decided on.
"""

from typing import Any, Final

from libs.kube import views
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import NotFound, UnknownKind
from libs.kube.lease.term import CLOCK_SKEW, LEASE_SECONDS, REQUEST_TIMEOUT
from libs.kube.resources import LEASES
from libs.kube.views import format_micro_time, parse_time
from libs.runtime.clock import Clock
from libs.runtime.env import Env


class LeaseRecord:
    def __init__(self, *, kube: Kube, namespace: str, name: str, holder: str, clock: Clock) -> None:
        self.holder = holder
        self.title = f"lease {namespace}/{name}"
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._clock = clock

    def now(self) -> str:
        return format_micro_time(self._clock.now())

    async def read(self, *, within: float = REQUEST_TIMEOUT) -> views.Lease | None:
        try:
            return await self._kube.get(
                LEASES, self._name, namespace=self._namespace, within=within
            )
        except UnknownKind:
            raise
        except NotFound:
            return None

    def cache(self, *, env: Env) -> Cache[views.Lease]:
        """Return a cache of this record alone."""
        return Cache(
            self._kube,
            LEASES,
            env=env,
            namespace=self._namespace,
            fields=f"metadata.name={self._name}",
        )

    def server_time(self, written: views.Lease) -> float | None:
        """Return when the server carried out our write, in whole seconds by its clock."""
        times = [
            entry.time
            for entry in written.metadata.managed_fields
            if entry.manager == self._kube.manager and entry.time
        ]
        return max(map(parse_time, times), default=None)

    async def claim(self, record: views.Lease | None) -> views.Lease:
        """Take the lease if the record has not changed since it was read."""
        stamp = self.now()
        spec = {**self._holder_fields(stamp), "acquireTime": stamp}
        if record is None:
            return await self._create({**spec, "leaseTransitions": 0}, within=REQUEST_TIMEOUT)
        transitions = (record.spec.lease_transitions or 0) + (
            record.spec.holder_identity != self.holder
        )
        spec["leaseTransitions"] = transitions
        return await self._write(
            spec, version=record.metadata.resource_version, within=REQUEST_TIMEOUT
        )

    async def renew(self, *, version: str, stamp: str, within: float) -> views.Lease:
        return await self._write(self._holder_fields(stamp), version=version, within=within)

    async def restore(self, *, transitions: int, stamp: str, within: float) -> views.Lease:
        """Recreate a deleted record."""
        spec = {**self._holder_fields(stamp), "acquireTime": stamp, "leaseTransitions": transitions}
        return await self._create(spec, within=within)

    async def release(self, *, version: str) -> None:
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self.now()}
        await self._write(spec, version=version, within=REQUEST_TIMEOUT)

    def _holder_fields(self, stamp: str) -> dict[str, Any]:
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "renewTime": stamp,
        }

    async def _create(self, spec: dict[str, Any], *, within: float) -> views.Lease:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        return await self._kube.create(LEASES, body, namespace=self._namespace, within=within)

    async def _write(self, spec: dict[str, Any], *, version: str, within: float) -> views.Lease:
        # A patch, not a PUT: metadata of others stays.
        return await self._kube.merge(
            LEASES,
            self._name,
            {"spec": spec},
            resource_version=version,
            namespace=self._namespace,
            within=within,
        )


def expiry_delay(lease: views.Lease | None) -> float:
    """Return the seconds after which a Lease that has not changed, or is missing, has expired."""
    stated = 0 if lease is None else lease.spec.lease_duration_seconds or 0
    return max(LEASE_SECONDS, float(stated)) + CLOCK_SKEW


GPU_OPERATOR_LEASE: Final = "53822513.nvidia.com"
"""Name of the Lease, in whatever namespace the operator runs."""


class GpuOperatorDetector:
    """Track the holders of that Lease in every namespace, using only the local clock.

    Each observed change of the Lease proves a live holder until it expires, even if the Lease is
    deleted meanwhile: its holder recreates it.
    """

    def __init__(self) -> None:
        self._holders: dict[str, tuple[str, float]] = {}
        """By key of the Lease: a description of its holder, and the time of its expiry."""

    def follow(self, leases: Cache[views.Lease], clock: Clock) -> None:
        """Observe each change of the Leases in a cache from now on."""
        leases.on_change(lambda before, after: self.observe(before, after, now=clock.monotonic()))

    def observe(self, before: views.Lease | None, after: views.Lease | None, *, now: float) -> None:
        lease = after or before
        if lease is None:
            return
        key, holder = lease.metadata.key, lease.spec.holder_identity
        if holder:
            self._holders[key] = (f"{holder} holds lease {key}", now + expiry_delay(lease))
        else:
            self._holders.pop(key, None)

    def active_holders(self, *, now: float) -> str:
        """Describe the active holders; empty if there are none."""
        return "; ".join(
            description for description, until in self._holders.values() if until > now
        )

    def seconds_until_expiry(self, *, now: float) -> float | None:
        """Return the seconds until the first active holder expires."""
        remaining = [until - now for _, until in self._holders.values() if until > now]
        return min(remaining, default=None)
