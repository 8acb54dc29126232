"""A program of several roles: `python -m services.<service> <role> [--print-config]`.

Each role has settings of its own and runs as a process of its own.
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
_USAGE_ERROR = 2


class Role(msgspec.Struct, Generic[S], frozen=True):
    """One role: its settings, and the start of its service, or of each of them by name."""

    kind: type[S]
    start: Start[S] | Mapping[str, Start[S]]

    def run(self, name: str, *, show: bool) -> int:
        """Run until the end, or only print the settings with `show`; return the exit code."""
        try:
            resolved = settings.resolve(self.kind, environ=os.environ)
        except settings.SettingsError as error:
            _exit_with_usage_error(str(error))
        if show:
            sys.stdout.write(settings.describe(resolved))
            return 0
        start = self.start
        return run_process(resolved.settings, {name: start} if callable(start) else start)


OneShot = Callable[[], int]
"""A role that is not a service: it does one task and returns the exit code."""


def run_program(service: str, roles: Mapping[str, Role[Any] | OneShot]) -> NoReturn:
    """Run the role named by the arguments, and exit.

    Logs and metrics name a role by service and role, such as `driver-cluster`. Exit codes: 0 after
    a stop, 1 after a failure, 2 for wrong arguments or settings.
    """
    name, *arguments = sys.argv[1:] or [""]
    role = roles.get(name)
    if role is None:
        problem = f"unknown role {name}" if name else "no role given"
        _exit_with_usage_error(f"{problem}: expected one of {', '.join(sorted(roles))}")
    allowed = set[str]() if callable(role) else {PRINT_CONFIG}
    for argument in arguments:
        if argument not in allowed:
            _exit_with_usage_error(
                f"unknown argument {argument}: settings come from SLUICE_* variables and the file"
                f" that SLUICE_CONFIG names; {PRINT_CONFIG} shows those of a service"
            )
    full_name = name if name == service else f"{service}-{name}"
    sys.exit(role() if callable(role) else role.run(full_name, show=bool(arguments)))


def _exit_with_usage_error(message: str) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.exit(_USAGE_ERROR)
