"""Probes of a driver's containers; fields of the policy override the defaults."""

from typing import Final

import msgspec

from libs.policy.kinds.common import Probe
from libs.policy.normalize import LIVENESS_PROBE, READINESS_PROBE, STARTUP_PROBE
from libs.policy.render.pod_fields import JsonObject

SCRIPT: Final = "/usr/local/bin/startup-probe.sh"
SCRIPT_CONFIG_MAP: Final = "nvidia-driver-startup-probe"
READY_FILE: Final = "/run/nvidia/validations/.driver-ctr-ready"
DAEMONS_FILE: Final = "/run/nvidia/validations/.driver-daemons-status"

SCRIPT_TEXT: Final = f"""#!/bin/sh
# The driver has started once its kernel module, its daemons and nvidia-smi say so. What the
# validator reads of the driver's extra modules is written then.
if [ ! -f /sys/module/nvidia/refcnt ]; then
  echo "the kernel module nvidia is not loaded yet"
  exit 1
fi
if [ -f {DAEMONS_FILE} ]; then
  status=$(cat {DAEMONS_FILE})
  if [ "$status" != Ready ]; then
    echo "the driver's daemons say '$status', not Ready"
    exit 1
  fi
fi
if ! nvidia-smi; then
  echo "nvidia-smi failed"
  exit 1
fi
mkdir -p /run/nvidia/validations
cat > {READY_FILE}.new <<END
GDRCOPY_ENABLED: ${{GDRCOPY_ENABLED:-false}}
GDS_ENABLED: ${{GDS_ENABLED:-false}}
GPU_DIRECT_RDMA_ENABLED: ${{GPU_DIRECT_RDMA_ENABLED:-false}}
END
mv {READY_FILE}.new {READY_FILE}
"""

_MODULE_PROBE: Final = Probe(
    initial_delay_seconds=10, timeout_seconds=10, period_seconds=10, failure_threshold=120
)


def driver_probes(
    startup: Probe | None, liveness: Probe | None, readiness: Probe | None
) -> JsonObject:
    """Return the probes of the driver container.

    Liveness and readiness probes exist only if the policy sets them: restarting a driver
    interrupts its users.
    """
    probes = {"startupProbe": _probe(["sh", "-c", SCRIPT], STARTUP_PROBE, startup)}
    if liveness:
        probes["livenessProbe"] = _probe(
            ["test", "-f", "/sys/module/nvidia/refcnt"], LIVENESS_PROBE, liveness
        )
    if readiness:
        probes["readinessProbe"] = _probe(["test", "-f", READY_FILE], READINESS_PROBE, readiness)
    return probes


def module_probes(module: str) -> JsonObject:
    """Return the probes of a container that loads an extra module."""
    command = ["test", "-d", f"/sys/module/{module}"]
    return {
        "startupProbe": _probe(command, _MODULE_PROBE, None),
        "livenessProbe": _probe(command, LIVENESS_PROBE, None),
    }


def _probe(command: list[str], defaults: Probe, given: Probe | None) -> JsonObject:
    fields: JsonObject = {**msgspec.to_builtins(defaults)}
    if given:
        fields |= msgspec.to_builtins(given)
    return {"exec": {"command": command}, **fields}
