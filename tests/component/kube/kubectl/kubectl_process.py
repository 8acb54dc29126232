"""The real kubectl, run as a process."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

TIMEOUT = 60.0
"""Upper limit for one command, in seconds, on a busy machine."""


class Kubectl:
    """kubectl for one server, with a namespace, and a prefix for cluster-scoped names."""

    def __init__(self, binary: Path, *, kubeconfig: Path, home: Path, token: str) -> None:
        self.namespace = token
        self.prefix = f"{token}-"
        self.selector = f"--selector=test={token}"
        self.labels = {"test": token}
        self._binary = binary
        self._environ = {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(home),
            "KUBECACHEDIR": str(home / "cache"),
        }

    async def __call__(self, line: str, *rest: str, stdin: object = None) -> str:
        """Return the output of a command that must succeed.

        The words of `line` and each of `rest` are arguments; `stdin` is sent as JSON.
        """
        code, out, err = await self.run([*line.split(), *rest], stdin)
        assert code == 0, f"kubectl {line} {' '.join(rest)}: {code}\n{out}\n{err}"
        return out

    async def fails(self, line: str, *rest: str, stdin: object = None) -> str:
        """Run a command that must fail; return its one line of error output."""
        code, out, err = await self.run([*line.split(), *rest], stdin)
        assert (code, out) == (1, ""), f"kubectl {line} {' '.join(rest)}: {code}\n{out}\n{err}"
        (message,) = err.splitlines()
        return message

    async def rows(self, line: str, *rest: str) -> list[list[str]]:
        """Return the rows of a table, each split into cells."""
        return [_cells(row) for row in (await self(line, *rest)).splitlines()]

    async def get_json(self, line: str, *rest: str) -> Any:
        """Return the object that `-o json` prints."""
        return json.loads(await self(line, *rest, "-o", "json"))

    @asynccontextmanager
    async def follow(self, line: str) -> AsyncGenerator[asyncio.StreamReader]:
        """Yield the output of a command that keeps running; stop it at the end."""
        process = await self._start(line.split())
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            if not process.stdout.at_eof():
                process.terminate()
            await process.communicate()

    async def run(self, words: Sequence[str], stdin: object) -> tuple[int | None, str, str]:
        """Return the exit code, the standard output and the standard error."""
        process = await self._start(words)
        given = _documents(stdin)
        try:
            async with asyncio.timeout(TIMEOUT):
                out, err = await process.communicate(given)
        except BaseException:
            process.kill()
            await process.communicate()
            raise
        return process.returncode, out.decode(), err.decode()

    async def _start(self, words: Sequence[str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._binary,
            "--namespace",
            self.namespace,
            *words,
            env=self._environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


async def next_row(output: asyncio.StreamReader) -> list[str]:
    """Return the cells of the next line of output."""
    async with asyncio.timeout(TIMEOUT):
        return _cells((await output.readline()).decode().rstrip("\n"))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("  ") if cell.strip()]


def _documents(stdin: object) -> bytes:
    if stdin is None:
        return b""
    objects = cast("list[object]", stdin) if isinstance(stdin, list) else [stdin]
    return b"\n".join(json.dumps(each).encode() for each in objects)
