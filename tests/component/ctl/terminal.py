"""A pseudo-terminal in which the command runs as a program, and the screen that it draws."""

import asyncio
import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from libs.testing.child_process import bytecode_environ
from tests.component.ctl.warm import WarmRun, run_warm, take_terminal

_SEQUENCE: Final = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|\x1b[78=>]|([^\x1b])", re.DOTALL)
_SECONDS: Final = 60.0
"""A generous deadline: the program starts on a busy machine."""


class ScreenText:
    """What a terminal shows after what was written to it. It knows what the live view uses."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.modes = {"?7", "?25"}
        """Private modes that are set: lines wrap, there is a cursor, `?1049`: the other screen."""
        self.styles: set[str] = set()
        """Parameters of all colours and attributes that were set."""
        self._rows = [[" "] * width for _ in range(height)]
        self._at = [0, 0]
        self._kept = self._rows, self._at
        """What is shown again when the other screen is left."""
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def feed(self, data: str) -> None:
        text = self._rest + data
        # A sequence that has not come whole is kept for the next read.
        cut = text.rfind("\x1b")
        whole = cut < 0 or _SEQUENCE.match(text, cut) is not None
        self._rest = "" if whole else text[cut:]
        for found in _SEQUENCE.finditer(text if whole else text[:cut]):
            if found[3] is not None:
                self._put(found[3])
            elif found[2] is not None:
                self._control(found[1], found[2])

    def _put(self, character: str) -> None:
        row, column = self._at
        if character == "\n":
            if row == self.height - 1:
                self._rows = [*self._rows[1:], [" "] * self.width]
            self._at[0] = min(row + 1, self.height - 1)
        elif character == "\r":
            self._at[1] = 0
        else:
            if column == self.width:
                assert "?7" in self.modes, f"a line is longer than the terminal: {self.text}"
                self._put("\n")
                self._at[1] = 0
                row, column = self._at
            self._rows[row][column] = character
            self._at[1] += 1

    def _control(self, parameters: str, final: str) -> None:
        row = self._at[0]
        if final == "H":
            down, _, right = parameters.partition(";")
            row, column = int(down or 1) - 1, int(right or 1) - 1
            self._at = [min(row, self.height - 1), min(column, self.width - 1)]
        elif final == "K":
            self._rows[row] = [" "] * self.width
        elif final == "J":
            for number in range(row, self.height):
                self._rows[number] = [" "] * self.width
        elif final in "hl":
            self._set_mode(parameters, is_set=final == "h")
        elif final == "m":
            self.styles.update(parameters.split(";"))

    def _set_mode(self, mode: str, *, is_set: bool) -> None:
        if mode == "?1049" and is_set:
            self._kept = self._rows, self._at
            self._rows = [[" "] * self.width for _ in range(self.height)]
        elif mode == "?1049":
            self._rows, self._at = self._kept
        (self.modes.add if is_set else self.modes.discard)(mode)


class Session:
    """The command in a pseudo-terminal."""

    def __init__(
        self, process: "subprocess.Popen[bytes] | WarmRun", terminal: int, screen: ScreenText
    ) -> None:
        self.process = process
        self.screen = screen
        self.written = ""
        """All that the program has written, with its control sequences."""
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(terminal, self._read)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, width: int, height: int) -> None:
        modes = self.screen.modes
        self.screen = ScreenText(width, height)
        self.screen.modes = modes
        _set_size(self._terminal, width, height)

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as it does for a shell."""
        flags: int = termios.tcgetattr(self._terminal)[3]
        return bool(flags & termios.ECHO) and bool(flags & termios.ICANON)

    async def wait_for(
        self, condition: Callable[[ScreenText], Any], *, within: float = _SECONDS
    ) -> str:
        """Return the screen's text once the condition holds."""
        async with asyncio.timeout(within):
            while not condition(self.screen):
                self._changed.clear()
                await self._changed.wait()
        return self.screen.text

    async def shows(self, *texts: str, within: float = _SECONDS) -> str:
        """Return the screen's text once it shows all of these."""

        def has_all(screen: ScreenText) -> bool:
            return all(each in screen.text for each in texts)

        try:
            return await self.wait_for(has_all, within=within)
        except TimeoutError:
            raise AssertionError(f"the screen does not show {texts}:\n{self.screen.text}") from None

    async def end(self) -> int:
        """Return the exit code once the program has ended."""
        async with asyncio.timeout(_SECONDS):
            return await asyncio.to_thread(self.process.wait)

    def close(self) -> None:
        self._loop.remove_reader(self._terminal)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._terminal)

    def _read(self) -> None:
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:  # the program has ended, and nothing holds the other end
            data = b""
        if not data:
            self._loop.remove_reader(self._terminal)
        text = self._decoder.decode(data)
        self.written += text
        self.screen.feed(text)
        self._changed.set()


@asynccontextmanager
async def in_terminal(
    *arguments: str,
    environ: Mapping[str, str],
    width: int = 80,
    height: int = 24,
    program: str = "",
) -> AsyncGenerator[Session]:
    """Run the command, or another program that is started anew, in a pseudo-terminal of this size.

    `tests.component.ctl.terminal` is the command started anew.
    """
    ours, theirs = pty.openpty()
    _set_size(ours, width, height)
    merged = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        **bytecode_environ(),
        **environ,
    }
    if program:
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", program, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=merged,
            start_new_session=True,
        )
    else:
        process = await asyncio.to_thread(run_warm, arguments, merged, theirs)
    os.close(theirs)
    session = Session(process, ours, ScreenText(width, height))
    try:
        yield session
    finally:
        await asyncio.to_thread(session.close)


def _set_size(terminal: int, width: int, height: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


if __name__ == "__main__":
    from libs.ctl.command import main

    take_terminal(0)
    code = main(sys.argv[1:])
    if loaded := os.environ.get("LOADED"):  # a file for the names of the imported modules
        Path(loaded).write_text("\n".join(sys.modules))
    sys.exit(code)
