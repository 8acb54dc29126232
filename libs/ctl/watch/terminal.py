"""The terminal: keys as they are pressed, and frames of which only changed lines are written."""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from libs.ctl.failures import ExitCode, Failure
from libs.ctl.views.frame.compose import Frame
from libs.ctl.views.frame.text import Line

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, no cursor, no wrapping."""
_LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_SYSTEMS: Final = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT,
                   "truecolor": ColorSystem.TRUECOLOR}  # fmt: skip


def require_terminal() -> None:
    """Fail unless both input and output are a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure(
            ExitCode.REFUSED,
            "`sluice watch` needs a terminal for input and output; `sluice status` and `sluice"
            " events --follow` write lines",
        )
    if os.environ.get("TERM", "") in ("", "dumb"):
        raise Failure(
            ExitCode.REFUSED,
            "`sluice watch` needs a terminal that can move its cursor, and TERM is"
            f" {os.environ.get('TERM') or 'not set'}; `sluice status` writes lines",
        )


class Terminal:
    """A terminal that shows frames. `on_keys` gets bytes, none at its end."""

    def __init__(self, *, on_keys: Callable[[bytes], None], on_resize: Callable[[], None]) -> None:
        console = Console(highlight=False)
        self._color_system = _SYSTEMS.get(console.color_system or "")
        self._no_color = console.no_color
        self._on_keys = on_keys
        self._on_resize = on_resize
        self._shown: list[Line | None] = []
        self._render = lru_cache(maxsize=256)(self._codes)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        found = os.get_terminal_size(sys.stdout.fileno())
        return found.columns or 80, found.lines or 24

    @contextmanager
    def open(self) -> Generator[None]:
        """Take the terminal; give it back as it was, whatever happens."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        try:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, _key_by_key(before))
            self._write(_ENTER)
            loop.add_reader(descriptor, self._read, descriptor)
            loop.add_signal_handler(signal.SIGWINCH, self._resized)
            yield
        finally:
            loop.remove_reader(descriptor)
            loop.remove_signal_handler(signal.SIGWINCH)
            with suppress(OSError, termios.error):  # the terminal may be gone
                self._write(_LEAVE)
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)

    def show(self, frame: Frame) -> None:
        """Write the lines that differ from those shown."""
        # Erased whole before the first frame: a terminal takes a place below its last line for
        # that line, so that nothing can be erased below a frame that fills it.
        parts = [] if self._shown else ["\x1b[H\x1b[0m\x1b[J"]
        shown = [*self._shown, *[None] * (len(frame.lines) - len(self._shown))]
        for number, line in enumerate(frame.lines):
            if line != shown[number]:
                # Erased first: at the end of a full line some terminals would erase its last cell.
                parts.append(f"\x1b[{number + 1};1H\x1b[0m\x1b[2K{self._text(line)}")
        if len(self._shown) > len(frame.lines):
            parts.append(f"\x1b[{len(frame.lines) + 1};1H\x1b[0m\x1b[J")
        self._shown = list(frame.lines)
        if parts:
            self._write("".join(parts))

    def _text(self, line: Line) -> str:
        pieces: list[str] = []
        for span in line:
            before, after = self._render(span.style)
            pieces.append(f"{before}{span.text}{after}")
        return "".join(pieces)

    def _codes(self, style: str) -> tuple[str, str]:
        """Return what is written before and after text in a style."""
        parsed = Style.parse(style)
        if self._no_color or self._color_system is None:
            parsed = parsed.without_color
        rendered = parsed.render("\0", color_system=self._color_system or ColorSystem.STANDARD)
        before, _, after = rendered.partition("\0")
        return before, after

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.buffer.write(text.encode(encoding, errors="replace"))
        sys.stdout.buffer.flush()

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 1024)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(descriptor)
        self._on_keys(data)

    def _resized(self) -> None:
        self._shown = []
        self._on_resize()


def _key_by_key(attributes: list[Any]) -> list[Any]:
    """Return attributes under which keys are neither echoed nor held until Enter, and Ctrl-Z does
    not leave a terminal that nothing restores.
    """
    changed = [*attributes[:3], attributes[3] & ~(termios.ICANON | termios.ECHO), *attributes[4:]]
    characters = list(changed[6])
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    characters[termios.VSUSP] = b"\0"
    changed[6] = characters
    return changed
