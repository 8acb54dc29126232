"""A program of several roles: `python -m sluice.<service> <role> [--print-config]`.

A role has settings of its own and is a process by itself; who runs it says so in its arguments.
What a role does is not known here.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from libs.runtime import settings
from libs.runtime.process import ProcessSettings, Start, run_process

S = TypeVar("S", bound=ProcessSettings)

PRINT_CONFIG = "--print-config"
_REFUSED = 2


class Role(msgspec.Struct, Generic[S], frozen=True):
    """One role: its settings, and the start of its service, or of each of them by name."""

    kind: type[S]
    start: Start[S] | Mapping[str, Start[S]]

    def run(self, name: str, *, show: bool) -> int:
        """Until it ends, or only `show` what it was told; the exit code."""
        try:
            resolved = settings.resolve(self.kind, environ=os.environ)
        except settings.SettingsError as error:
            _refuse(str(error))
        if show:
            sys.stdout.write(settings.describe(resolved))
            return 0
        start = self.start
        return run_process(resolved.settings, {name: start} if callable(start) else start)


OneShot = Callable[[], int]
"""A role that is no service: it does one thing and gives the exit code."""


def run_program(service: str, roles: Mapping[str, Role[Any] | OneShot]) -> NoReturn:
    """The whole of a program: the role of its arguments, until that ends.

    In logs and metrics a role is called by service and role, `driver-cluster`.
    0 after a stop, 1 after a failure, 2 when it cannot start for its arguments or settings.
    """
    name, *arguments = sys.argv[1:] or [""]
    role = roles.get(name)
    if role is None:
        _refuse(f"{_misnamed(name)}: give one of {', '.join(sorted(roles))}")
    taken = set[str]() if callable(role) else {PRINT_CONFIG}
    for argument in arguments:
        if argument not in taken:
            _refuse(
                f"unknown argument {argument}: settings come from SLUICE_* variables and the file"
                f" that SLUICE_CONFIG names; {PRINT_CONFIG} shows those of a service"
            )
    called = name if name == service else f"{service}-{name}"
    sys.exit(role() if callable(role) else role.run(called, show=bool(arguments)))


def _misnamed(name: str) -> str:
    return f"unknown role {name}" if name else "no role given"


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"{why}\n")
    sys.exit(_REFUSED)
