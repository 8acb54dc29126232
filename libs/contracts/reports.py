"""What a component says of itself: the last word of each kind counts.

Reports carry node uid and boot id; a reader ignores those of another node uid or boot than the
Node's. Only that component of that node can write them, so the subject says who speaks, and a
report that names somebody else in its envelope is not one.
"""

import msgspec

from libs.contracts.commands import Order
from libs.contracts.facts import Facts
from libs.contracts.message import Bodies, Data, Message, OpenEnum, raw


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


# What became of commands.


class Progress(Data, frozen=True, kw_only=True):
    """An op under way: which sub-step, and what it waits for."""

    epoch: int
    token: int
    op: int
    command: str
    phase: str
    detail: str = ""
    since: float = 0.0

    @property
    def order(self) -> Order:
        """The op it is about."""
        return Order(self.token, self.op)


class Outcome(OpenEnum):
    """How an op ended."""

    DONE = "done"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class Result(Data, frozen=True, kw_only=True):
    """The terminal report of an op: exactly one per op that was begun."""

    epoch: int
    token: int
    op: int
    command: str
    outcome: Outcome
    code: str = ""
    """One word for the cause of a failure."""
    message: str = ""
    started: float = 0.0
    finished: float = 0.0

    @property
    def order(self) -> Order:
        """The op it is about."""
        return Order(self.token, self.op)


class RefusalCode(OpenEnum):
    """Why a command or check was not taken."""

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
    """A command or check that was not taken, in words."""

    code: RefusalCode
    message: str
    epoch: int = 0
    token: int = 0
    op: int = 0
    check: str = ""
    command: str = ""

    @property
    def order(self) -> Order:
        """The op it is about."""
        return Order(self.token, self.op)


# Answers to checks, and what the engine rests on.


class Holder(Data, frozen=True, kw_only=True):
    """A process that has one of the GPU's device files open."""

    pid: int
    comm: str = ""
    devices: tuple[str, ...] = ()
    pod_uid: str = ""
    container_id: str = ""


class Holders(Data, frozen=True, kw_only=True):
    """Who holds the devices."""

    check: str
    holders: tuple[Holder, ...] = ()


class Finding(Data, frozen=True, kw_only=True):
    """One thing that stands in the way, and the way out."""

    code: str
    message: str
    remedy: str = ""


class Preflight(Data, frozen=True, kw_only=True):
    """Whether a driver could be brought up here. Empty findings: it could."""

    check: str
    label: str
    findings: tuple[Finding, ...] = ()


class ValidationStep(Data, frozen=True, kw_only=True):
    """One step of the validator's chain."""

    name: str
    passed: bool
    message: str = ""
    seconds: float = 0.0


class Evidence(Data, frozen=True, kw_only=True):
    """The validator's proof: it names exactly what was proven, and nothing else counts."""

    epoch: int
    token: int
    op: int
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
    at: float = 0.0

    @property
    def order(self) -> Order:
        """The validation op that produced it."""
        return Order(self.token, self.op)


class PodUse(Data, frozen=True, kw_only=True):
    """A pod on this node that uses GPUs."""

    pod_uid: str
    gpus: int = 0
    processes: int = 0


class Usage(Data, frozen=True, kw_only=True):
    """Who computes on this node."""

    pods: tuple[PodUse, ...] = ()
    host_processes: int = 0


StateBody = Facts | Progress | Result | Refusal | Holders | Preflight | Evidence | Usage

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
    """When it was made, by the sender's clock: for people. Silence is measured by the reader's."""
    body: msgspec.Raw

    @classmethod
    def of(
        cls, body: StateBody, *, node: str, node_uid: str, boot_id: str, component: str, at: float
    ) -> "Report":
        """A report with this body; its kind follows from the body."""
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
        """The typed body, or `Unreadable`."""
        return REPORTS.open(self.kind, self.body)
