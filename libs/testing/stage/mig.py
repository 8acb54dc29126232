"""Configurations of MIG, each named after what becomes of it."""

from libs.contracts.commands import REBOOT_REQUIRED, GpuGeometry, Mig
from libs.forecast.stage.objects import UNDIVIDED
from libs.rollout.views.machine import WantedMig

ALL_DISABLED, FAILS, REBOOTS, UNKNOWN = "all-disabled", "fails", "reboots", "unknown"
"""Configurations that turn MIG off, cannot be applied, are applied by a reboot, or do not exist.
Any other is applied."""

_GPU = "GPU-1"


def digest_of(config: str) -> str:
    return UNDIVIDED if config == ALL_DISABLED else f"mig-{config}"


def wanted_mig(config: str) -> WantedMig:
    """Return what a label with this configuration asks for."""
    if config == UNKNOWN:
        return WantedMig(config=config, error=f"there is no MIG configuration {config}")
    digest = digest_of(config)
    gpus = (GpuGeometry(uuid=_GPU, index=0, mig=digest != UNDIVIDED),)
    return WantedMig(config=config, digest=digest, gpus=gpus, may_reboot=True)


def division_failure(body: Mig) -> tuple[str, str] | None:
    """Return why the configuration cannot be applied now; None: it can."""
    if body.config == FAILS:
        return "no-room", "GPU 0 has no room; it is divided as before"
    return (REBOOT_REQUIRED, "GPU 0 cannot be reset") if body.config == REBOOTS else None
