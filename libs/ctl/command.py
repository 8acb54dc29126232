"""The `sluice` command, also found by kubectl as `kubectl sluice`.

A verb's module, and what it needs, is imported when the verb runs.
"""

import errno
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Final

import typer

from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import ACCESS_OPTIONS, Access
from libs.ctl.output import leave, prepare_streams

_DEFAULTS: Final = Access()
_OUTPUT_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""A full disk, a quota, a limit of the size of files."""

app: Final = typer.Typer(
    help="Look after the NVIDIA GPU nodes of a Kubernetes cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 unexpected, 2 wrong arguments, 3 not reachable, 4 not found,"
    " 5 not allowed, 6 refused, 7 fault found.",
)


def verb(of: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a verb; its first parameter is `Access`, from the shared options."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(**given: Any) -> None:
            access = Access(**{field: given.pop(field) for field in ACCESS_OPTIONS})
            access.check()
            try:
                function(access, **given)
            except BrokenPipeError:
                leave(sys.stdout)  # typer would end the program as failed

        own = list(signature(function, eval_str=True).parameters.values())[1:]
        shared = [
            Parameter(
                field, Parameter.KEYWORD_ONLY, default=getattr(_DEFAULTS, field), annotation=option
            )
            for field, option in ACCESS_OPTIONS.items()
        ]
        parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
        run.__dict__.pop("__wrapped__")
        run.__dict__["__signature__"] = Signature([*parameters, *shared])
        of.command(name)(run)
        return function

    return register


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_streams()
    code: int = ExitCode.DONE
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        leave(sys.stdout)
    except Failure as failure:
        return _fail(f"{failure}{failure.hint}", failure.code)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001  (a person sees one line, never a traceback)
        if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS and not error.filename:
            leave(sys.stdout)
            return _fail(f"the output cannot be written: {error.strerror}", ExitCode.UNEXPECTED)

        from libs.runtime.fatal import describe_error, raised_at

        problem = f"unexpected: {describe_error(error)} (at {raised_at(error)}); please report it"
        return _fail(problem, ExitCode.UNEXPECTED)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    from libs.ctl import verbs

    verbs.register(app)
    program = "kubectl sluice" if Path(sys.argv[0]).name == "kubectl-sluice" else "sluice"
    given = [_text(each) for each in (sys.argv[1:] if arguments is None else arguments)]
    try:
        code = app(given, prog_name=program, standalone_mode=False)
    except SystemExit as exited:
        code = exited.code
    except typer.TyperException as error:
        return _wrong_arguments(error, program)
    return code if isinstance(code, int) else ExitCode.DONE


def _text(argument: str) -> str:
    """Replace bytes that are no text: nothing that is named so can be asked for."""
    return argument.encode(errors="surrogateescape").decode(errors="replace")


def _wrong_arguments(error: typer.TyperException, program: str) -> int:
    """Tell in one line what is wrong with the arguments; without any, what there is."""
    text = error.format_message()
    if text.startswith("Usage: "):
        print(text, file=sys.stderr)
        return error.exit_code
    text = text.removeprefix("Invalid value: ").rstrip(".")
    text = text.replace("is not a valid int range", "is not a whole number")
    context = getattr(error, "ctx", None)
    command = program if context is None else context.command_path
    problem = f"{text[:1].lower()}{text[1:]}; `{command} -h` tells what may be written"
    return _fail(problem, ExitCode(error.exit_code))


def _fail(problem: str, code: ExitCode) -> int:
    from libs.ctl.text import cut_words, printable

    try:
        print(f"sluice: {cut_words(printable(problem))}", file=sys.stderr, flush=True)
    except OSError:
        leave(sys.stderr)  # the exit code still tells
    return code
