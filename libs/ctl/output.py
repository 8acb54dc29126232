"""Write answers: for people with `rich`, for programs as JSON or YAML."""

import os
import shutil
import sys
from contextlib import contextmanager
from enum import StrEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from typing import TextIO

    from rich.console import RenderableType
    from rich.segment import Segment

T = TypeVar("T")
NARROWEST = 20
"""Columns; a terminal that reports fewer is taken for one that wide."""


class Format(StrEnum):
    """How an answer is written; without one, as text."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class PictureFormat(StrEnum):
    """How a plan is written; without one, as text."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    HTML = "html"
    SVG = "svg"


def prepare_streams() -> None:
    """Read nothing and write nowhere where the shell has closed a standard stream.

    What the encoding of a stream lacks becomes a question mark.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  (open until the end)
        elif mode == "w" and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def leave(stream: "TextIO") -> None:
    """Drop what is left to write: its reader, as `head`, has enough, or there is no room."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show(
    answer: Any, view: "Callable[[int, bool], RenderableType]", *, format: Format | None
) -> None:
    """Write an answer; `view` renders it for a width, and with all columns or not."""
    if format is Format.JSON:
        from libs.ctl.text import escaped

        text = msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
        sys.stdout.write(f"{escaped(text)}\n")
    elif format is Format.YAML:
        sys.stdout.write(_yaml(msgspec.to_builtins(answer)))
    else:
        print_view(view(terminal_width(), format is Format.WIDE))


def _yaml(content: Any) -> str:
    """Return YAML in which what would control a terminal is escaped; PyYAML leaves some of it."""
    import yaml

    from libs.ctl.text import escaped

    class Dumper(yaml.SafeDumper):
        pass

    def text_of(dumper: Any, text: str) -> Any:
        quoted = any(not each.isprintable() and each != "\n" for each in text)
        style = '"' if quoted else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, text_of)
    return escaped(yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def run_shown(what: str, work: "Coroutine[Any, Any, T]") -> "T":
    """Run until the result is there; show what takes more than a second, and how long it does."""
    import asyncio

    results: list[T] = []

    async def run() -> None:  # asyncio.run writes out the result of its task, all rows of it
        results.append(await shown(what, work))

    asyncio.run(run())
    return results[0]


async def shown(what: str, work: "Coroutine[Any, Any, T]") -> "T":
    """Await, and count the seconds where a person sees standard error."""
    import asyncio

    task = asyncio.ensure_future(work)
    text, seconds = "", 0
    try:
        while not (await asyncio.wait({task}, timeout=1.0))[0]:
            seconds += 1
            if sys.stderr.isatty():
                text = f"{what}: {seconds} s"
                print(f"\r{text}", end="", file=sys.stderr, flush=True)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if text:
            print(f"\r{' ' * len(text)}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> "Generator[Callable[[int, int], None]]":
    """Show how many of all are done, where a person sees standard error."""
    shown = ""

    def report(done: int, total: int) -> None:
        nonlocal shown
        shown = f"{done} of {total} {what}"
        print(f"\r{shown}", end="", file=sys.stderr, flush=True)

    is_seen = sys.stderr.isatty()
    try:
        yield report if is_seen else lambda _done, _total: None
    finally:
        if shown:
            print(f"\r{' ' * len(shown)}\r", end="", file=sys.stderr, flush=True)


def print_view(view: "RenderableType") -> None:
    """Print a view without blanks at the ends of its lines."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `rich` would end the program as failed

    # Without a terminal there is no width to keep to: a table stays a table in a file.
    console = Output(width=terminal_width(), highlight=False, soft_wrap=False)
    lines = map(_without_blanks, console.render_lines(view, pad=False))
    console.print(Segments([each for line in lines for each in (*line, Segment.line())]), end="")


def _without_blanks(line: "list[Segment]") -> "list[Segment]":
    """Return a line without the blanks that fill its last column."""
    end = next((at for at in range(len(line), 0, -1) if line[at - 1].text.strip()), 0)
    if not end:
        return []
    last = line[end - 1]
    return [*line[: end - 1], last._replace(text=last.text.rstrip())]


def view_lines(view: "RenderableType", *, width: int) -> list[str]:
    """Return a view as the lines of a terminal of this width, without colours."""
    import io

    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, highlight=False, color_system=None).print(view)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def terminal_width() -> int:
    """Return the terminal's columns, or $COLUMNS; many where the output is no terminal."""
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS")):
        return 200
    return max(NARROWEST, shutil.get_terminal_size().columns)
