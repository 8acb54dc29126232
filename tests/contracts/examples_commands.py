"""Examples of commands, checks and beats."""

from libs.contracts.commands import (
    Check,
    CheckBody,
    Command,
    CommandBody,
    HoldersCheck,
    Idle,
    Install,
    Order,
    PreflightCheck,
    Proven,
    Quiesce,
    Swap,
    Validate,
)
from libs.contracts.reports import Beat
from tests.contracts import examples
from tests.contracts.examples import Example


def _command(body: CommandBody) -> Example:
    message = Command.of(
        body,
        node=examples.NODE,
        node_uid=examples.NODE_UID,
        boot_id=examples.BOOT,
        epoch=examples.EPOCH,
        order=Order(examples.TOKEN, examples.OP),
        deadline=examples.T0 + 120,
    )
    return Example(message, body)


def _check(body: CheckBody) -> Example:
    message = Check.of(
        body,
        id="check-41",
        node=examples.NODE,
        node_uid=examples.NODE_UID,
        boot_id=examples.BOOT,
        now=examples.T0,
    )
    return Example(message, body)


EXAMPLES = {
    "command.quiesce": _command(Quiesce()),
    "command.idle": _command(Idle(proven=Proven(label=examples.LABEL, kernel=examples.KERNEL))),
    "command.idle@nothing-proven": _command(Idle()),
    "command.swap": _command(
        Swap(
            label=examples.LABEL,
            install_digest=examples.INSTALL,
            old_pod_uid=examples.OLD_POD,
            keep=True,
        )
    ),
    "command.install": _command(
        Install(
            label=examples.LABEL, artefact_digest=examples.ARTEFACT, install_digest=examples.INSTALL
        )
    ),
    "command.validate": _command(
        Validate(
            label=examples.LABEL,
            install_digest=examples.INSTALL,
            pod_uid=examples.NEW_POD,
            steps=("driver", "toolkit", "cuda", "plugin"),
        )
    ),
    "command.validate@started": _command(
        Validate(label=examples.LABEL, pod_uid=examples.NEW_POD, started=examples.T0 + 20)
    ),
    "check.preflight": _check(
        PreflightCheck(
            label=examples.LABEL,
            install_digest=examples.INSTALL,
            artefact_digest=examples.ARTEFACT,
            removes_pods=(examples.JOB_POD,),
        )
    ),
    "check.holders": _check(HoldersCheck()),
    "beat": Example(
        Beat(
            node=examples.NODE,
            node_uid=examples.NODE_UID,
            boot_id=examples.BOOT,
            component="driver",
            release="0.1.0",
            knows=("quiesce", "idle", "swap", "install", "preflight", "holders"),
            epoch=examples.EPOCH,
            token=examples.TOKEN,
            op=examples.OP,
        )
    ),
}
