"""A GPU of the fleet, by its Device and by what became of the driver of its node. Pure."""

import msgspec

from libs.fleet.node import DriverState


class FleetGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as Kubernetes shows it."""

    node: str
    index: int
    product: str
    memory_mib: int = 0
    """0: not known."""
    health: str
    because: str = ""
    remedy: str = ""
    uuid: str = ""
    driver: str = ""
    driver_state: DriverState = DriverState.RUNS
    """Without a driver, an earlier verdict says nothing."""
    mig: str = ""
    """The mode of MIG; empty: not reported."""
