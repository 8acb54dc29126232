"""Why nodes wait: the codes, what all waits with one code have in common, and who can end them.

docs/states.md#waits says what each code means. The command and the scheduler's Events tell waits in
these words, so they stand below the engine, which the command does without.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from libs.contracts.message import OpenEnum
from libs.contracts.rollout import BY_BRAKE, BY_BRAKE_OR_POLICY, BY_RELEASE

WAITS_REASON = "GPUDriverUpgradeWaits"
"""The reason of Kubernetes Events about waits, whose messages begin with the code of the wait."""


class WaitCode(OpenEnum):
    """Why a node is not in its wanted state; docs/states.md says who can end each wait."""

    # before the node is changed
    BUDGET = "budget"
    PROOF = "proof"
    HALTED = "halted"
    PAUSED = "paused"
    FROZEN = "frozen"
    SKIPPED = "skipped"
    GPU_FAILED = "gpu-failed"
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
    MIG = "mig"
    REBOOT = "reboot"
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


ITSELF = "itself"
"""What ends a wait that no person has to end."""
BY_RETRY = "by a retry"
"""How a wait says that people end it."""
_IF_IT_LASTS: Final = f"{ITSELF}; if it lasts, "
"""Precedes the people who can end a wait that usually ends by itself: before it has lasted, nobody
has to look at it."""
AGENT_LATE: Final = f"{_IF_IT_LASTS}an administrator of the agent that the details name"
DRIVER_AGENT_LATE: Final = f"{_IF_IT_LASTS}an administrator of the driver agent"
DRIVER_SERVICE_LATE: Final = f"{_IF_IT_LASTS}an administrator of the driver service"
GATE_BLOCKED: Final = "an administrator of the driver agent, of the driver image or of NATS"
POD_OWNERS: Final = "the owners of the pods"
_BY_ANOTHER_DRIVER: Final = "the author of the policy, by another driver"
FAILED_AND_RELEASED: Final = (
    f"an administrator, {BY_RELEASE} (the retry follows by itself); {_BY_ANOTHER_DRIVER}"
)
"""Who ends the wait of a node that failed on a target which is halted, and has retries left."""
FAILED_AND_HALTED: Final = (
    f"an administrator, {BY_RELEASE} and then {BY_RETRY}; {_BY_ANOTHER_DRIVER}"
)
"""Who ends the wait of a node that failed on a target which is halted, with no retry left."""
DRIVER_ADMINISTRATOR: Final = "the administrator of the machine or of the driver image"


class WaitFacts(NamedTuple):
    """What all waits with one code have in common."""

    who: str
    """Who can end it. A wait may name somebody else, where that is known better."""
    of_pool: bool = False
    """A whole pool, or all of them, have it at once. The conditions of the Rollout tell it: an
    Event on each Node would say the same thousands of times."""
    of_node: bool = False
    """It concerns the node alone: the rollout of the other nodes completes without it."""
    awaited: bool = False
    """The code names what the node waits for; the others say how it is."""
    of_others: bool = False
    """It lasts until jobs, pods or disruption budgets of others let the node go on."""
    timed: bool = False
    """Its time is known, and it ends although no node is in flight."""


WAITS: Final[Mapping[WaitCode, WaitFacts]] = {
    WaitCode.BUDGET: WaitFacts(
        f"{ITSELF}; the author of the policy, by raising the limits", of_pool=True, awaited=True
    ),
    WaitCode.PROOF: WaitFacts(
        f"{ITSELF}; an administrator, if the nodes in progress cannot go on",
        of_pool=True,
        awaited=True,
    ),
    WaitCode.HALTED: WaitFacts(
        f"an administrator, {BY_RELEASE}; {_BY_ANOTHER_DRIVER}", of_pool=True
    ),
    WaitCode.PAUSED: WaitFacts(f"an administrator, {BY_BRAKE_OR_POLICY}", of_pool=True),
    WaitCode.FROZEN: WaitFacts(f"an administrator, {BY_BRAKE}", of_pool=True),
    WaitCode.SKIPPED: WaitFacts(
        "an administrator, by removing the skip label or the cordon", of_node=True
    ),
    WaitCode.GPU_FAILED: WaitFacts(
        "the administrator of the machine, by repairing the GPU; or, if another driver may be the"
        " cure, an administrator, by the annotation nvidia.com/gpu-driver-upgrade-requested=true",
        of_node=True,
    ),
    WaitCode.BACK_OFF: WaitFacts(f"{ITSELF}; {_BY_ANOTHER_DRIVER}", awaited=True, timed=True),
    WaitCode.PREFLIGHT: WaitFacts(
        "an administrator, by removing the cause, or by the request without-preflight",
        of_node=True,
        awaited=True,
    ),
    WaitCode.AGENT_SILENT: WaitFacts(
        "an administrator of the agent that the details name", of_node=True
    ),
    WaitCode.NOT_READY: WaitFacts("the administrator of the machine", of_node=True),
    WaitCode.TARGET_UNSETTLED: WaitFacts(
        f"{_IF_IT_LASTS}an administrator of the driver service or of the DaemonSet controller",
        of_node=True,
    ),
    WaitCode.TARGET_MISSING: WaitFacts(
        "the author of the policy, or of the driver artefacts", of_node=True
    ),
    WaitCode.JOBS: WaitFacts("the owners of the jobs", awaited=True, of_others=True),
    WaitCode.EVICTION: WaitFacts(f"{_IF_IT_LASTS}{POD_OWNERS}", awaited=True, of_others=True),
    WaitCode.PDB: WaitFacts("the owner of the disruption budget", awaited=True, of_others=True),
    WaitCode.OPERANDS: WaitFacts(
        f"{_IF_IT_LASTS}an administrator of these operands", awaited=True, of_others=True
    ),
    WaitCode.QUIESCE: WaitFacts(ITSELF, awaited=True),
    WaitCode.OLD_DRIVER: WaitFacts(
        f"{_IF_IT_LASTS}the owner of a finalizer on the pod, or the administrator of the kubelet",
        awaited=True,
    ),
    WaitCode.UNLOAD: WaitFacts(
        "the owners of the processes that use the GPU devices", awaited=True
    ),
    WaitCode.GATE: WaitFacts(f"{_IF_IT_LASTS}{GATE_BLOCKED}", awaited=True),
    WaitCode.DRIVER_START: WaitFacts(ITSELF, awaited=True),
    WaitCode.VALIDATION: WaitFacts(ITSELF, awaited=True),
    WaitCode.MIG: WaitFacts(
        "an administrator, by another value of the label nvidia.com/mig.config", awaited=True
    ),
    WaitCode.REBOOT: WaitFacts(
        "the administrator of the machine, by rebooting the node", awaited=True
    ),
    WaitCode.FAILED: WaitFacts(f"an administrator, {BY_RETRY}; {_BY_ANOTHER_DRIVER}", of_node=True),
    WaitCode.LABEL_EDITED: WaitFacts(
        "the user of the field manager that the details name, by restoring the value; then an"
        " administrator, by a retry",
        of_node=True,
    ),
    WaitCode.RECORD_LOST: WaitFacts(
        "an administrator, by the request adopt or forget", of_node=True
    ),
    WaitCode.DRIVER_RESTARTING: WaitFacts(
        "an administrator, by removing the cause and then by a retry", of_node=True, timed=True
    ),
    WaitCode.FOREIGN_OPERATOR: WaitFacts(
        "an administrator, by removing one of the two operators", of_pool=True
    ),
    WaitCode.POLICY_GONE: WaitFacts("the author of the policy, by creating it again", of_pool=True),
    WaitCode.STALE: WaitFacts(f"{_IF_IT_LASTS}the administrator of the API server", of_pool=True),
    WaitCode.BUS: WaitFacts(f"{_IF_IT_LASTS}the administrator of NATS", of_pool=True, awaited=True),
    WaitCode.REFUSED: WaitFacts(
        "the administrator of what refuses the request, as the details say: an admission webhook, a"
        " quota, the rights of Sluice, NATS"
    ),
}
"""The wait codes; docs/states.md#waits says what each means, and until when."""

RESOLVED_BY: Final = {code: facts.who for code, facts in WAITS.items()}
WAITS_OF_POOLS: Final = frozenset(code for code, facts in WAITS.items() if facts.of_pool)
WAITS_OF_NODES: Final = frozenset(code for code, facts in WAITS.items() if facts.of_node)
AWAITED: Final = frozenset(code for code, facts in WAITS.items() if facts.awaited)
WAITS_FOR_OTHERS: Final = frozenset(code for code, facts in WAITS.items() if facts.of_others)
TIMED_WAITS: Final = frozenset(code for code, facts in WAITS.items() if facts.timed)


def ends_by_itself(who: str) -> bool:
    """Report whether no person has to end a wait, by the text of what can end it."""
    return who.startswith(ITSELF)


def is_for_people(code: WaitCode, who: str) -> bool:
    """Whether a wait is of one node, and somebody has to end it."""
    return code not in WAITS_OF_POOLS and not ends_by_itself(who)


def resolver_if_it_lasts(who: str) -> str:
    """Return who can end a wait that usually ends by itself; empty: it is another wait."""
    return who.removeprefix(_IF_IT_LASTS) if who.startswith(_IF_IT_LASTS) else ""


def people_of(who: str) -> str:
    """Return the people who can end a wait; empty: it only ends by itself."""
    people = resolver_if_it_lasts(who) or who.removeprefix(f"{ITSELF}; ")
    return "" if people == ITSELF else people
