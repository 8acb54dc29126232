"""What is to be done about a container runtime: its files are written here, restarts decided.

Each step may be the last one of a process. The next process finds the same files, and the attempt
of a restart, and goes on from there.
"""

from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from libs.host.files import UndoableFiles
from libs.host.runtimes import configuration, containerd
from libs.host.runtimes.common import HANDLERS, NotConfigurable
from libs.host.runtimes.configuration import RuntimeKind, Wanted
from libs.host.runtimes.port import RuntimeStatus
from libs.host.tree import Tree
from libs.runtime.logs import logger
from services.driver.node import runtime_attempt as attempts
from services.driver.node.runtime_attempt import UNDO, RuntimeAttempt, fingerprint

_log = logger()


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the runtime of a machine is to be configured."""

    configure: bool = True
    """False: nothing is configured, and what was configured is taken back."""
    main: str = ""
    """The configuration file; empty: that of the runtime's command line, or its default."""
    drop_in: str = ""
    handlers: tuple[str, ...] = HANDLERS
    restart: str = ""
    """`signal`, `systemd` or `none`; empty: by systemd where the runtime is a unit of it."""


class Settled(msgspec.Struct, frozen=True):
    """Nothing is to be done now."""

    why: str = ""
    """Why the runtime is not as it should be; empty if it is."""


class Restarting(msgspec.Struct, frozen=True):
    """The runtime ends, or starts."""

    why: str


class Restart(msgspec.Struct, frozen=True):
    """The runtime has to be restarted, when it may be."""

    attempt: RuntimeAttempt
    why: str


class StartAgain(msgspec.Struct, frozen=True):
    """The runtime did not start with our files, which have been taken back."""

    unit: str
    why: str


Step: TypeAlias = Settled | Restarting | Restart | StartAgain


def lacking(status: RuntimeStatus, settings: RuntimeSettings) -> str:
    """Return what the runtime does not know yet; empty if it knows all."""
    missing = [each for each in settings.handlers if each not in status.handlers]
    parts = [
        f"does not know the handlers {', '.join(missing)}" if missing else "",
        "" if status.reads_cdi else "reads no CDI specs",
    ]
    text = " and ".join(filter(None, parts))
    return f"{status.name} {text}" if text else ""


def next_step(
    tree: Tree, settings: RuntimeSettings, status: RuntimeStatus | str, *, now: float
) -> Step:
    """Write what has to be written, and return what follows; `status` may be a problem.

    Raise `NotConfigurable`, `CorruptUndoLog` or an OSError where the files must stay as they are.
    """
    attempt = attempts.load(tree)
    if not settings.configure:
        return _taken_back(tree, settings, status, attempt, now)
    if isinstance(status, str):
        if attempt is None or attempt.failed or attempt.plan == UNDO:
            return Settled(status)
        if not attempt.is_late(now):
            return Restarting(status)
        return StartAgain(attempt.unit, _give_up(tree, attempt, status))
    return _configured(tree, settings, status, attempt, now)


def _configured(
    tree: Tree,
    settings: RuntimeSettings,
    status: RuntimeStatus,
    attempt: RuntimeAttempt | None,
    now: float,
) -> Step:
    problem = lacking(status, settings)
    if not problem and not UndoableFiles(tree).has_changes:
        return Settled()
    plan = configuration.plan(tree, _wanted(status, settings))
    name = fingerprint(plan)
    same = attempt if attempt is not None and attempt.plan == name else None
    if same is not None and same.failed:
        _undo(tree)
        return Settled(same.failed)
    if configuration.install(tree, plan):
        _log.info("the container runtime's configuration changed", files=list(plan))
    if not problem:
        attempts.clear(tree)
        return Settled()
    if same is not None and status.pid != same.pid:
        found = f"{problem}, although it was started again with {', '.join(plan)}"
        return Settled(_give_up(tree, same, f"{found}: is its configuration another file?"))
    if same is not None and not same.is_late(now):
        return Restarting(f"{problem}: it is being restarted")
    new = RuntimeAttempt(plan=name, pid=status.pid, unit=status.unit, at=now)
    return Restart(new, problem)


def _taken_back(
    tree: Tree,
    settings: RuntimeSettings,
    status: RuntimeStatus | str,
    attempt: RuntimeAttempt | None,
    now: float,
) -> Step:
    """Take our files back; the runtime forgets our handlers when it starts again."""
    if UndoableFiles(tree).has_changes:
        pid, unit = (0, "") if isinstance(status, str) else (status.pid, status.unit)
        attempt = RuntimeAttempt(plan=UNDO, pid=pid, unit=unit, at=0.0)
        attempts.save(tree, attempt)
        _undo(tree)
    if attempt is None or isinstance(status, str):
        return Settled(status if isinstance(status, str) else "")
    knows = any(each in status.handlers for each in settings.handlers)
    if attempt.plan != UNDO or attempt.pid != status.pid or not knows:
        attempts.clear(tree)
        return Settled()
    if attempt.at and not attempt.is_late(now):
        return Restarting("it is being restarted")
    why = f"{status.name} knows handlers whose configuration has been taken back"
    return Restart(replace(attempt, at=now), why)


def _wanted(status: RuntimeStatus, settings: RuntimeSettings) -> Wanted:
    if status.name not in tuple(RuntimeKind):
        raise NotConfigurable(
            f"the container runtime is {status.name!r}, which Sluice does not configure: add the"
            f" handlers {', '.join(settings.handlers)} by hand, or set NO_RUNTIME_CONFIG to true"
        )
    return Wanted(
        kind=RuntimeKind(status.name),
        main=settings.main or status.config,
        drop_in=settings.drop_in,
        handlers=settings.handlers,
        merges=containerd.merges(status.version),
    )


def _give_up(tree: Tree, attempt: RuntimeAttempt, problem: str) -> str:
    """Take our files back until what they are made of changes; return why."""
    why = f"{problem}; its configuration is as it was before"
    attempts.save(tree, replace(attempt, failed=why))
    _undo(tree)
    _log.error("the container runtime's configuration is taken back", why=why)
    return why


def _undo(tree: Tree) -> None:
    files = UndoableFiles(tree)
    left = files.undo() if files.has_changes else ()
    if left:
        _log.warning("files that others changed stay as they are", paths=list(left))
