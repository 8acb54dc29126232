"""The real kubectl as people use it: a process that says something and ends with a code."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

TIMEOUT = 60.0
"""Seconds in which any of them is through, on a busy machine."""


class Kubectl:
    """One person at one server, with a namespace and a prefix for the names of all else."""

    def __init__(self, binary: Path, *, kubeconfig: Path, home: Path, token: str) -> None:
        self.namespace = token
        self.prefix = f"{token}-"
        self.mine = f"--selector=test={token}"
        self.labels = {"test": token}
        self._binary = binary
        self._environ = {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(home),
            "KUBECACHEDIR": str(home / "cache"),
        }

    async def __call__(self, line: str, *rest: str, stdin: object = None) -> str:
        """What it prints, when all is well.

        The words of `line` are arguments, and so is each of `rest`; objects go in as JSON.
        """
        code, out, err = await self.run([*line.split(), *rest], stdin)
        assert code == 0, f"kubectl {line} {' '.join(rest)}: {code}\n{out}\n{err}"
        return out

    async def fails(self, line: str, *rest: str, stdin: object = None) -> str:
        """The one line in which it says why, when it does not do it."""
        code, out, err = await self.run([*line.split(), *rest], stdin)
        assert (code, out) == (1, ""), f"kubectl {line} {' '.join(rest)}: {code}\n{out}\n{err}"
        (said,) = err.splitlines()
        return said

    async def rows(self, line: str, *rest: str) -> list[list[str]]:
        """A table, split at the gaps between its columns."""
        return [_cells(row) for row in (await self(line, *rest)).splitlines()]

    async def get_json(self, line: str, *rest: str) -> Any:
        """What `-o json` says."""
        return json.loads(await self(line, *rest, "-o", "json"))

    @asynccontextmanager
    async def follow(self, line: str) -> AsyncGenerator[asyncio.StreamReader]:
        """The output of one that goes on: until it is read to its end, or else told to stop."""
        process = await self._start(line.split())
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            if not process.stdout.at_eof():
                process.terminate()
            await process.communicate()

    async def run(self, words: Sequence[str], stdin: object) -> tuple[int | None, str, str]:
        """The code, what it prints and what it complains of."""
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
    """Of what goes on being printed."""
    async with asyncio.timeout(TIMEOUT):
        return _cells((await output.readline()).decode().rstrip("\n"))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("  ") if cell.strip()]


def _documents(stdin: object) -> bytes:
    if stdin is None:
        return b""
    objects = cast("list[object]", stdin) if isinstance(stdin, list) else [stdin]
    return b"\n".join(json.dumps(each).encode() for each in objects)
