"""Commands and checks for components.

Commands are desired state: a component's slot holds its current command. A command identifies its
op by (node uid, token, op), independent of the stream. A slot that differs only by a newer epoch is
the same op, adopted by a new leader, and is not run again.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from libs.contracts.gpus import GpuIdentity
from libs.contracts.message import Bodies, Data, Message, OpenEnum, raw
from libs.contracts.numbers import Count, Epoch, Op, Token


class Order(NamedTuple):
    """The order of an op among all ops of one node uid and component; later ops are greater."""

    token: Token
    op: Op

    def __str__(self) -> str:
        return f"{self.token}.{self.op}"


class CommandKind(OpenEnum):
    """The kinds of command. Unknown kinds are refused."""

    QUIESCE = "quiesce"
    IDLE = "idle"
    SWAP = "swap"
    INSTALL = "install"
    VALIDATE = "validate"
    MIG = "mig"


TASKS: Final[Mapping[str, str]] = {
    CommandKind.QUIESCE: "close the GPU devices",
    CommandKind.IDLE: "stand by",
    CommandKind.SWAP: "change the driver",
    CommandKind.INSTALL: "install the driver",
    CommandKind.VALIDATE: "validate the driver",
    CommandKind.MIG: "divide the GPUs",
}
"""What an agent is told to do, for people."""


def describe(kind: str, order: Order) -> str:
    """Return what an agent is told to do, and the command that its journal names."""
    return f"{TASKS.get(kind, kind)} (command {kind} {order})"


class Proven(Data, frozen=True, kw_only=True):
    """A validated driver, for which the driver agent may open its gate outside an op."""

    label: str
    kernel: str
    install_digest: str = ""
    """Empty where none is known, as of a driver that was not installed by a driver pod."""


class Quiesce(Data, frozen=True, kw_only=True):
    """Close NVML, release devices and report it; stay running until the next command."""


class Idle(Data, frozen=True, kw_only=True):
    """Do nothing. For the driver agent and the validator, `proven` names the validated driver."""

    proven: Proven | None = None
    config: str = ""
    """For the device plugin: the configuration that the node's label names; empty: the default."""


class Swap(Data, frozen=True, kw_only=True):
    """Wait for the old containers to exit, unload, clear the root, open the gate for the label."""

    label: str
    """The next driver; empty means that the driver is removed."""
    install_digest: str = ""
    old_pod_uid: str = ""
    keep: bool = False
    """Whether the kernel modules stay loaded and only the pod changes."""


class Install(Data, frozen=True, kw_only=True):
    """Host method: install the artefact with this digest. The command has no path and no URL."""

    label: str
    artefact_digest: str = ""
    install_digest: str = ""


class Validate(Data, frozen=True, kw_only=True):
    """Validate this driver and this instance of it."""

    label: str
    install_digest: str = ""
    pod_uid: str = ""
    container_id: str = ""
    """The driver's container in the runtime, which identifies the run to validate."""
    started: float = 0.0
    """When Kubernetes started that container; the evidence names the run by it."""
    steps: tuple[str, ...] = ()
    """The validation steps to run; empty means all."""
    failed_gpus: tuple[GpuIdentity, ...] = ()
    """GPUs that had failed before the operation: their failure is none of the driver."""
    plugin: bool = False
    """Whether Sluice's device plugin offers the GPUs of the node, which is then proven too."""


class GpuGeometry(Data, frozen=True, kw_only=True):
    """How one GPU is to be divided."""

    uuid: str
    index: Count
    mig: bool = False
    """Whether MIG mode is on."""
    profiles: tuple[str, ...] = ()
    """The profile of each MIG device, such as `1g.10gb`; empty where MIG mode is off."""


REBOOT_REQUIRED = "reboot-required"
"""The code of a failed `mig` that only a reboot of the node completes."""


class Mig(Data, frozen=True, kw_only=True):
    """Divide the GPUs so. Where they are divided so already, nothing changes."""

    config: str
    """The name of the configuration, for people."""
    digest: str
    """Of the geometry; the evidence names it."""
    gpus: tuple[GpuGeometry, ...] = ()
    """GPUs that are not listed keep what they have."""
    reboot: bool = False
    """Whether a change that only a reboot completes is left pending. Otherwise the GPUs are divided
    as before. Either way the op then fails with the code `reboot-required`."""


CommandBody = Quiesce | Idle | Swap | Install | Validate | Mig

COMMANDS: Bodies[CommandKind, CommandBody] = Bodies(
    "command",
    {
        CommandKind.QUIESCE: Quiesce,
        CommandKind.IDLE: Idle,
        CommandKind.SWAP: Swap,
        CommandKind.INSTALL: Install,
        CommandKind.VALIDATE: Validate,
        CommandKind.MIG: Mig,
    },
)


class Command(Message, frozen=True, kw_only=True):
    """The content of a slot."""

    node: str
    node_uid: str
    boot_id: str
    epoch: Epoch
    token: Token
    op: Op
    kind: CommandKind
    body: msgspec.Raw
    deadline: float
    """Unix seconds, by the leader's clock, after which the op is not started."""
    valid_seconds: float = 0.0
    """How long after the agent first reads it the op may start: its clock may differ from the
    leader's. 0: `deadline` counts, of a leader that does not know this field."""

    @classmethod
    def of(
        cls,
        body: CommandBody,
        *,
        node: str,
        node_uid: str,
        boot_id: str,
        epoch: int,
        order: Order,
        deadline: float,
        valid_seconds: float = 0.0,
    ) -> "Command":
        return cls(
            node=node,
            node_uid=node_uid,
            boot_id=boot_id,
            epoch=epoch,
            token=order.token,
            op=order.op,
            kind=COMMANDS.kind_of(body),
            body=raw(body),
            deadline=deadline,
            valid_seconds=valid_seconds,
        )

    @property
    def order(self) -> Order:
        return Order(self.token, self.op)

    def open(self) -> CommandBody:
        """Return the typed body, or raise `MalformedMessage`."""
        return COMMANDS.open(self.kind, self.body)


class CheckKind(OpenEnum):
    """The kinds of check: read-only questions to a component."""

    PREFLIGHT = "preflight"
    HOLDERS = "holders"
    JOURNAL = "journal"


class PreflightCheck(Data, frozen=True, kw_only=True):
    """Check whether a driver could be installed on the node, and report obstacles."""

    label: str
    install_digest: str = ""
    artefact_digest: str = ""
    removes_pods: tuple[str, ...] = ()
    """UIDs of pods that the upgrade removes; GPU use by them is not an obstacle."""
    prefetch: bool = False
    """The driver's image is to be brought to the node, by the driver service's cluster role."""


class HoldersCheck(Data, frozen=True, kw_only=True):
    """List the processes that hold GPU devices open."""


class JournalCheck(Data, frozen=True, kw_only=True):
    """Publish a page of the component's journal: what follows its first `after` entries."""

    after: Count = 0


CheckBody = PreflightCheck | HoldersCheck | JournalCheck

CHECKS: Bodies[CheckKind, CheckBody] = Bodies(
    "check",
    {
        CheckKind.PREFLIGHT: PreflightCheck,
        CheckKind.HOLDERS: HoldersCheck,
        CheckKind.JOURNAL: JournalCheck,
    },
)

CHECK_VALID_SECONDS = 60.0


class Check(Message, frozen=True, kw_only=True):
    """A read-only question without lease or token, valid for one minute and one boot."""

    id: str
    node: str
    node_uid: str
    boot_id: str
    kind: CheckKind
    body: msgspec.Raw
    expires: float
    """Unix seconds, by the clock of who asks."""
    valid_seconds: float = 0.0
    """How long the answer may take, from when the agent reads the check: its clock may differ. 0:
    `expires` counts, of a sender that does not know this field."""

    @classmethod
    def of(
        cls, body: CheckBody, *, id: str, node: str, node_uid: str, boot_id: str, now: float
    ) -> "Check":
        """Return a check that expires `CHECK_VALID_SECONDS` after `now`."""
        return cls(
            id=id,
            node=node,
            node_uid=node_uid,
            boot_id=boot_id,
            kind=CHECKS.kind_of(body),
            body=raw(body),
            expires=now + CHECK_VALID_SECONDS,
            valid_seconds=CHECK_VALID_SECONDS,
        )

    def open(self) -> CheckBody:
        """Return the typed body, or raise `MalformedMessage`."""
        return CHECKS.open(self.kind, self.body)
