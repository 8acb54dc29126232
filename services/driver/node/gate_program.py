"""The gate in a driver pod: it asks, and ends when the driver agent has answered.

A program of its own, in an init container; it sees one folder of the machine and nothing else.
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
    say: Callable[[str], None] = print,
) -> int:
    """Stand at the gate until it opens; the exit code."""
    lacking = [name for name in ("POD_UID", "SLUICE_DRIVER_LABEL") if not environ.get(name)]
    if lacking:
        say(f"the gate cannot ask: {' and '.join(lacking)} not set; the driver pod must name them")
        return 2
    asking = GateRequest(
        pod_uid=environ["POD_UID"], label=environ["SLUICE_DRIVER_LABEL"], started=now()
    )
    try:
        gate.put_request(tree, asking)
    except OSError as error:
        say(
            f"the gate cannot ask in {gate.FOLDER}: {error.strerror}; mount the host's folder there"
        )
        return 1
    say(f"waits at the gate with label {asking.label}: the driver agent of this node must answer")
    waited = 0.0
    while not gate.is_open(tree, asking):
        sleep(INTERVAL)
        waited += INTERVAL
        if waited % LOG_INTERVAL < INTERVAL:
            say(f"still waits after {waited:.0f} s: see what the driver agent of this node says")
    say("the gate is open")
    return 0
