"""Examples of commands, checks and beats."""

from libs.contracts.beats import Beat
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
from tests.contracts import story
from tests.contracts.example import Example


def _command(body: CommandBody) -> Example:
    message = Command.of(
        body,
        node=story.NODE,
        node_uid=story.NODE_UID,
        boot_id=story.BOOT,
        epoch=story.EPOCH,
        order=Order(story.TOKEN, story.OP),
        deadline=story.T0 + 120,
    )
    return Example(message, body)


def _check(body: CheckBody) -> Example:
    message = Check.of(
        body,
        id="check-41",
        node=story.NODE,
        node_uid=story.NODE_UID,
        boot_id=story.BOOT,
        now=story.T0,
    )
    return Example(message, body)


EXAMPLES = {
    "command.quiesce": _command(Quiesce()),
    "command.idle": _command(Idle(proven=Proven(label=story.LABEL, kernel=story.KERNEL))),
    "command.idle@nothing-proven": _command(Idle()),
    "command.swap": _command(
        Swap(
            label=story.LABEL,
            install_digest=story.INSTALL,
            old_pod_uid=story.OLD_POD,
            keep=True,
        )
    ),
    "command.install": _command(
        Install(label=story.LABEL, artefact_digest=story.ARTEFACT, install_digest=story.INSTALL)
    ),
    "command.validate": _command(
        Validate(
            label=story.LABEL,
            install_digest=story.INSTALL,
            pod_uid=story.NEW_POD,
            steps=("driver", "toolkit", "cuda", "plugin"),
        )
    ),
    "command.validate@started": _command(
        Validate(label=story.LABEL, pod_uid=story.NEW_POD, started=story.T0 + 20)
    ),
    "check.preflight": _check(
        PreflightCheck(
            label=story.LABEL,
            install_digest=story.INSTALL,
            artefact_digest=story.ARTEFACT,
            removes_pods=(story.JOB_POD,),
        )
    ),
    "check.holders": _check(HoldersCheck()),
    "beat": Example(
        Beat(
            node=story.NODE,
            node_uid=story.NODE_UID,
            boot_id=story.BOOT,
            component="driver",
            release="0.1.0",
            knows=("quiesce", "idle", "swap", "install", "preflight", "holders"),
            epoch=story.EPOCH,
            token=story.TOKEN,
            op=story.OP,
        )
    ),
}
