"""The gate in a driver pod: requests admission, and exits when the driver agent has answered.

It runs in an init container that sees one folder of the machine and nothing else.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from libs.host import gate
from libs.host.gate import GateRequest
from libs.host.tree import Tree

INTERVAL: Final = 0.5
LOG_INTERVAL: Final = 60.0


def wait_at_gate(
    tree: Tree,
    environ: Mapping[str, str],
    *,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    log: Callable[[str], None] = print,
) -> int:
    """Wait until the gate opens; return the exit code."""
    missing = [name for name in ("POD_UID", "SLUICE_DRIVER_LABEL") if not environ.get(name)]
    if missing:
        log(f"the gate cannot ask: {' and '.join(missing)} not set; the driver pod must name them")
        return 2
    request = GateRequest(
        pod_uid=environ["POD_UID"], label=environ["SLUICE_DRIVER_LABEL"], started=now()
    )
    try:
        gate.put_request(tree, request)
    except OSError as error:
        log(
            f"the gate cannot ask in {gate.FOLDER}: {error.strerror}; mount the host's folder there"
        )
        return 1
    log(f"waits at the gate with label {request.label}: the driver agent of this node must answer")
    waited = 0.0
    while not gate.is_open(tree, request):
        sleep(INTERVAL)
        waited += INTERVAL
        if waited % LOG_INTERVAL < INTERVAL:
            log(f"still waits after {waited:.0f} s: see what the driver agent of this node says")
    log("the gate is open")
    return 0
