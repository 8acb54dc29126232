"""What people do in the scenario of the demo, as data."""

import msgspec

from demo.fleet import FleetPool


class Cordon(msgspec.Struct, frozen=True):
    node: str


class CreateService(msgspec.Struct, frozen=True):
    name: str
    pool: FleetPool
    gpus: int
    has_budget: bool = False


class CreateJob(msgspec.Struct, frozen=True):
    name: str
    pool: FleetPool
    gpus: int


class FinishJob(msgspec.Struct, frozen=True):
    name: str


class Scale(msgspec.Struct, frozen=True):
    service: str
    replicas: int


class AskPlans(msgspec.Struct, frozen=True):
    pools: tuple[FleetPool, ...]
    version: str


class SetVersion(msgspec.Struct, frozen=True):
    pool: FleetPool
    version: str
    is_bad: bool = False
    """Whether the driver loads on no machine of this pool until it is repaired."""


class RepairDriver(msgspec.Struct, frozen=True):
    version: str


class AnnounceRelease(msgspec.Struct, frozen=True):
    """Say when the demo will release the halt, so that a viewer can release it first."""

    pool: FleetPool
    after: float
    """Seconds at the usual speed."""


class Release(msgspec.Struct, frozen=True):
    pool: FleetPool


class Retry(msgspec.Struct, frozen=True):
    pool: FleetPool


Action = (
    Cordon
    | CreateService
    | CreateJob
    | FinishJob
    | Scale
    | AskPlans
    | SetVersion
    | RepairDriver
    | AnnounceRelease
    | Release
    | Retry
)
