"""What a component is told to do (commands) and asked (checks).

Commands are desired state: the slot of a component holds the one that counts now. Order and
identity are in the command, (node uid, token, op), never in the stream that carries it: a slot
which differs only by a newer epoch is the same op, adopted by a new leader, and not run again.
"""

from typing import NamedTuple

import msgspec

from libs.contracts.message import Bodies, Data, Message, OpenEnum, raw


class Order(NamedTuple):
    """Where an op stands among all ops for one node uid and component. Later is greater."""

    token: int
    op: int

    def __str__(self) -> str:
        return f"{self.token}.{self.op}"


class CommandKind(OpenEnum):
    """The closed vocabulary of commands. A kind outside it is refused in words."""

    QUIESCE = "quiesce"
    IDLE = "idle"
    SWAP = "swap"
    INSTALL = "install"
    VALIDATE = "validate"


class Proven(Data, frozen=True, kw_only=True):
    """What the driver agent may open its gate for outside an op."""

    label: str
    kernel: str


class Quiesce(Data, frozen=True, kw_only=True):
    """Close NVML, let go of devices, say so, stay up; holds until the next command."""


class Idle(Data, frozen=True, kw_only=True):
    """Nothing to do. To the driver agent and the validator: with what is proven, if anything is."""

    proven: Proven | None = None


class Swap(Data, frozen=True, kw_only=True):
    """Wait for the old containers to go, unload, clear the root, open the gate to the label."""

    label: str
    """Empty: nothing comes after; the driver is removed."""
    install_digest: str = ""
    old_pod_uid: str = ""
    keep: bool = False
    """The modules stay loaded: only the pod changes."""


class Install(Data, frozen=True, kw_only=True):
    """Host method: install the artefact with this digest. No path and no URL travels here."""

    label: str
    artefact_digest: str = ""
    install_digest: str = ""


class Validate(Data, frozen=True, kw_only=True):
    """Prove this driver, on this instance of it."""

    label: str
    install_digest: str = ""
    pod_uid: str = ""
    started: float = 0.0
    """Start of the driver's container, as Kubernetes has it: this run is to be proven."""
    steps: tuple[str, ...] = ()
    """Which steps of the chain; empty means all of them."""


CommandBody = Quiesce | Idle | Swap | Install | Validate

COMMANDS: Bodies[CommandKind, CommandBody] = Bodies(
    "command",
    {
        CommandKind.QUIESCE: Quiesce,
        CommandKind.IDLE: Idle,
        CommandKind.SWAP: Swap,
        CommandKind.INSTALL: Install,
        CommandKind.VALIDATE: Validate,
    },
)


class Command(Message, frozen=True, kw_only=True):
    """The content of a slot."""

    node: str
    node_uid: str
    boot_id: str
    epoch: int
    token: int
    op: int
    kind: CommandKind
    body: msgspec.Raw
    deadline: float
    """Unix seconds. After it the op is not begun."""

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
    ) -> "Command":
        """A command with this body; its kind follows from the body."""
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
        )

    @property
    def order(self) -> Order:
        """Its place among the ops of its node uid and component."""
        return Order(self.token, self.op)

    def open(self) -> CommandBody:
        """The typed body, or `Unreadable`."""
        return COMMANDS.open(self.kind, self.body)


class CheckKind(OpenEnum):
    """Questions to a component that change nothing."""

    PREFLIGHT = "preflight"
    HOLDERS = "holders"


class PreflightCheck(Data, frozen=True, kw_only=True):
    """Could this driver be brought up here, and what would stand in the way?"""

    label: str
    install_digest: str = ""
    artefact_digest: str = ""
    removes_pods: tuple[str, ...] = ()
    """Uids of the pods that the plan will remove: as holders they are no obstacle."""


class HoldersCheck(Data, frozen=True, kw_only=True):
    """Who holds the devices now?"""


CheckBody = PreflightCheck | HoldersCheck

CHECKS: Bodies[CheckKind, CheckBody] = Bodies(
    "check", {CheckKind.PREFLIGHT: PreflightCheck, CheckKind.HOLDERS: HoldersCheck}
)

CHECK_VALID_SECONDS = 60.0


class Check(Message, frozen=True, kw_only=True):
    """A read-only question: no lease, no token; valid for a minute and for one boot."""

    id: str
    node: str
    node_uid: str
    boot_id: str
    kind: CheckKind
    body: msgspec.Raw
    expires: float

    @classmethod
    def of(
        cls, body: CheckBody, *, id: str, node: str, node_uid: str, boot_id: str, now: float
    ) -> "Check":
        """A question with this body, valid from `now` on for `CHECK_VALID_SECONDS`."""
        return cls(
            id=id,
            node=node,
            node_uid=node_uid,
            boot_id=boot_id,
            kind=CHECKS.kind_of(body),
            body=raw(body),
            expires=now + CHECK_VALID_SECONDS,
        )

    def open(self) -> CheckBody:
        """The typed body, or `Unreadable`."""
        return CHECKS.open(self.kind, self.body)
