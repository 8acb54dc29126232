"""Why a node is not where its policy wants it: the closed list of codes.

What each means, and who can end it, is in docs/states.md.
"""

from libs.contracts.message import OpenEnum


class WaitCode(OpenEnum):
    """Closed for us: we write no other. Open for readers, who may be older than the writer."""

    # before anything is done to the node
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
    # on the way
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
    # somebody has to look
    FAILED = "failed"
    LABEL_EDITED = "label-edited"
    RECORD_LOST = "record-lost"
    DRIVER_RESTARTING = "driver-restarting"
    FOREIGN_OPERATOR = "foreign-operator"
    POLICY_GONE = "policy-gone"
    # we cannot see, or not write
    STALE = "stale"
    BUS = "bus"
    REFUSED = "refused"
