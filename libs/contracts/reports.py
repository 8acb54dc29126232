"""Reports and heartbeats of components. The last report of each kind is current.

Readers ignore reports whose node uid or boot id differs from the Node's. Only the component itself
can publish on its subject, so a report whose envelope names another sender is invalid.
"""

from collections.abc import Collection

import msgspec

from libs.contracts.commands import Order
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import Facts
from libs.contracts.health import Health
from libs.contracts.message import Bodies, Data, Message, OpenEnum, raw
from libs.contracts.numbers import Count, Epoch, Op, Token


class StateKind(OpenEnum):
    """The kinds of report."""

    FACTS = "facts"
    PROGRESS = "progress"
    RESULT = "result"
    REFUSAL = "refusal"
    HOLDERS = "holders"
    PREFLIGHT = "preflight"
    EVIDENCE = "evidence"
    USAGE = "usage"
    HEALTH = "health"


# Results of commands.


class Progress(Data, frozen=True, kw_only=True):
    """A running op: its phase and what it waits for."""

    epoch: Epoch
    token: Token
    op: Op
    command: str
    phase: str
    detail: str = ""
    since: float = 0.0

    @property
    def order(self) -> Order:
        return Order(self.token, self.op)


class Outcome(OpenEnum):
    """How an op ended."""

    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class Result(Data, frozen=True, kw_only=True):
    """The final report of an op; exactly one per started op."""

    epoch: Epoch
    token: Token
    op: Op
    command: str
    outcome: Outcome
    code: str = ""
    """One word for the cause of a failure."""
    message: str = ""
    started: float = 0.0
    finished: float = 0.0

    @property
    def order(self) -> Order:
        return Order(self.token, self.op)


class RefusalCode(OpenEnum):
    """Why a command or check was refused."""

    OTHER_NODE = "other-node"
    OTHER_BOOT = "other-boot"
    OLDER_EPOCH = "older-epoch"
    OLDER_TOKEN = "older-token"
    OLDER_OP = "older-op"
    UNKNOWN_KIND = "unknown-kind"
    NOT_FOR_ME = "not-for-me"
    UNREADABLE = "unreadable"
    EXPIRED = "expired"
    JOURNAL = "journal"


class Refusal(Data, frozen=True, kw_only=True):
    """The refusal of a command or check."""

    code: RefusalCode
    message: str
    epoch: Epoch = 0
    token: Token = 0
    op: Op = 0
    check: str = ""
    command: str = ""

    @property
    def order(self) -> Order:
        return Order(self.token, self.op)


# Answers to checks, and inputs of the engine.


class Holder(Data, frozen=True, kw_only=True):
    """A process that has one of the GPU's device files open."""

    pid: Count
    comm: str = ""
    devices: tuple[str, ...] = ()
    pod_uid: str = ""
    container_id: str = ""


class Holders(Data, frozen=True, kw_only=True):
    """The processes that hold GPU devices open."""

    check: str
    holders: tuple[Holder, ...] = ()


NO_ACTION_NEEDED = "no action needed"
"""Begins the remedy of a finding that goes by itself."""


class Finding(Data, frozen=True, kw_only=True):
    """An obstacle to a driver change, and its remedy."""

    code: str
    message: str
    remedy: str = ""


class Preflight(Data, frozen=True, kw_only=True):
    """Whether a driver could be installed on the node: it could if there are no findings."""

    check: str
    label: str
    findings: tuple[Finding, ...] = ()


class ValidationStep(Data, frozen=True, kw_only=True):
    """One step of the validator's chain."""

    name: str
    passed: bool
    message: str = ""
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None
    """What is wrong, of a step that failed, where it has a name."""


class Resource(Data, frozen=True, kw_only=True):
    """Devices of one kind, as pods ask for them."""

    name: str
    count: Count


class Evidence(Data, frozen=True, kw_only=True):
    """The result of a validation, which applies exactly to the driver instance it names."""

    epoch: Epoch
    token: Token
    op: Op
    passed: bool
    label: str
    node_uid: str
    boot_id: str
    kernel: str
    driver_pod_uid: str = ""
    driver_started: float = 0.0
    """Start of the driver's container; with the host method, the load of the module."""
    driver_version: str = ""
    driver_digest: str = ""
    runtime_digest: str = ""
    mig_digest: str = ""
    steps: tuple[ValidationStep, ...] = ()
    notes: tuple[Diagnosis, ...] = ()
    """What should be known of the node, though it hinders no proof."""
    allocatable: tuple[Resource, ...] = ()
    """What the kubelet can give to pods; empty where the device plugin is not proven."""
    at: float = 0.0

    @property
    def order(self) -> Order:
        return Order(self.token, self.op)

    @property
    def was_asked(self) -> bool:
        """Whether a command asked for it; otherwise it only says why no driver can be proven."""
        return self.token > 0


def named_diagnoses(
    evidence: Evidence | None,
    obstacle: Diagnosis | None,
    outdated: Collection[Diagnosis] = (),
) -> tuple[Diagnosis, ...]:
    """Return what a node's evidence and its driver agent name, each once.

    Names that this version does not know are left out: an agent's own words name nothing.
    """
    found = [obstacle]
    if evidence is not None:
        found += [*(step.diagnosis for step in evidence.steps), *evidence.notes]
    known = (each for each in found if each is not None and each.is_known)
    return tuple(each for each in dict.fromkeys(known) if each not in outdated)


def outdated_diagnoses(facts: Facts) -> frozenset[Diagnosis]:
    """Return what the facts of a driver agent contradict: it was so when the node was validated."""
    runtime = facts.container_runtime
    is_as_wanted = runtime is not None and runtime.name and not runtime.why
    return frozenset({Diagnosis.RUNTIME_HANDLER}) if is_as_wanted else frozenset()


class PodUse(Data, frozen=True, kw_only=True):
    """A pod on this node that uses GPUs."""

    pod_uid: str
    gpus: Count = 0
    processes: Count = 0


class Usage(Data, frozen=True, kw_only=True):
    """The use of the node's GPUs by pods and host processes."""

    pods: tuple[PodUse, ...] = ()
    host_processes: Count = 0


StateBody = Facts | Progress | Result | Refusal | Holders | Preflight | Evidence | Usage | Health

REPORTS: Bodies[StateKind, StateBody] = Bodies(
    "report",
    {
        StateKind.FACTS: Facts,
        StateKind.PROGRESS: Progress,
        StateKind.RESULT: Result,
        StateKind.REFUSAL: Refusal,
        StateKind.HOLDERS: Holders,
        StateKind.PREFLIGHT: Preflight,
        StateKind.EVIDENCE: Evidence,
        StateKind.USAGE: Usage,
        StateKind.HEALTH: Health,
    },
)


class Report(Message, frozen=True, kw_only=True):
    """The envelope of every report."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    kind: StateKind
    at: float
    """Time of the report by the sender's clock, for people only; readers use their own clocks."""
    body: msgspec.Raw

    @classmethod
    def of(
        cls, body: StateBody, *, node: str, node_uid: str, boot_id: str, component: str, at: float
    ) -> "Report":
        return cls(
            node=node,
            node_uid=node_uid,
            boot_id=boot_id,
            component=component,
            kind=REPORTS.kind_of(body),
            at=at,
            body=raw(body),
        )

    def open(self) -> StateBody:
        """Return the typed body, or raise `MalformedMessage`."""
        return REPORTS.open(self.kind, self.body)


BEAT_PERIOD = 60.0
"""Seconds between beats, before jitter."""

SILENT_AFTER = 3 * BEAT_PERIOD
"""Seconds without a beat after which a component counts as silent."""


class Beat(Message, frozen=True, kw_only=True):
    """A heartbeat: the command and check kinds a component knows, and the highest order it saw."""

    node: str
    node_uid: str
    boot_id: str
    component: str
    release: str = ""
    """The component's version of Sluice."""
    knows: tuple[str, ...] = ()
    epoch: Epoch = 0
    token: Token = 0
    op: Op = 0
    at: float = 0.0
    """Unix seconds by the node's clock, which may be wrong: nothing is judged by it. 0: unknown."""
