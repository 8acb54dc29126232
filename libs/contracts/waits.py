"""Codes for why a node is not in its wanted state.

docs/states.md describes each code and who can end the wait.
"""

from libs.contracts.message import OpenEnum


class WaitCode(OpenEnum):
    """The wait codes. Older readers may receive codes that they do not know."""

    # before the node is changed
    BUDGET = "budget"
    PROOF = "proof"
    HALTED = "halted"
    PAUSED = "paused"
    FROZEN = "frozen"
    SKIPPED = "skipped"
    BACK_OFF = "back-off"
    PREFLIGHT = "preflight"
    AGENT_SILENT = "agent-silent"
    NOT_READY = "not-ready"
    TARGET_UNSETTLED = "target-unsettled"
    TARGET_MISSING = "target-missing"
    # during the upgrade
    JOBS = "jobs"
    EVICTION = "eviction"
    PDB = "pdb"
    OPERANDS = "operands"
    QUIESCE = "quiesce"
    OLD_DRIVER = "old-driver"
    UNLOAD = "unload"
    GATE = "gate"
    DRIVER_START = "driver-start"
    VALIDATION = "validation"
    # a person has to act
    FAILED = "failed"
    LABEL_EDITED = "label-edited"
    RECORD_LOST = "record-lost"
    DRIVER_RESTARTING = "driver-restarting"
    FOREIGN_OPERATOR = "foreign-operator"
    POLICY_GONE = "policy-gone"
    # the scheduler cannot read or write
    STALE = "stale"
    BUS = "bus"
    REFUSED = "refused"
