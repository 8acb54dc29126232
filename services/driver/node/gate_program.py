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
"""Seconds between two looks at the gate, which is a file: the wait is part of the drained time."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two lines of the log, so that somebody who looks sees what the pod waits for."""


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
        log(f"cannot request admission: the driver pod must set {' and '.join(missing)}")
        return 2
    request = GateRequest(
        pod_uid=environ["POD_UID"],
        label=environ["SLUICE_DRIVER_LABEL"],
        install_digest=environ.get("DRIVER_CONFIG_DIGEST", ""),
        started=now(),
    )
    try:
        gate.put_request(tree, request)
    except OSError as error:
        log(
            f"cannot request admission in {gate.FOLDER}: {error.strerror};"
            " mount the host's folder there"
        )
        return 1
    log(f"waiting for the driver agent of this node to admit driver {request.label}")
    waited = 0.0
    while not gate.is_open(tree, request):
        sleep(INTERVAL)
        waited += INTERVAL
        if waited % LOG_INTERVAL < INTERVAL:
            log(f"still waiting after {waited:.0f} s: see the log of the driver agent of this node")
    log("admitted: the gate is open")
    return 0
