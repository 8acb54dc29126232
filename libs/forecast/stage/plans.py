"""What a stage is built of, in the words of whoever sets it up."""

import msgspec

from libs.contracts.reports import Finding
from libs.forecast.stage.objects import Tenant

COMPONENTS = ("driver", "validator", "plugin", "telemetry", "discovery")
KNOWS = frozenset({"quiesce", "idle", "swap", "install", "validate", "preflight", "holders"})


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One machine with its Node, at the start."""

    name: str
    pool: str = ""
    variant: str = "ubuntu24.04"
    kernel: str = "6.8.0-31-generic"
    gpus: int = 8
    runs: str = ""
    """The target that it was upgraded to, with all evidence; empty: it has no driver yet."""
    tenants: tuple[Tenant, ...] = ()
    cordoned_by: str = ""
    """The manager of a person who had cordoned it."""
    obstacles: tuple[Finding, ...] = ()
    host_processes: int = 0
    last: bool = False
