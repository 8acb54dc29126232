"""A folder that goes when this process does, also when that is killed with -9.

A small process of its own waits for our end and removes it. Must not know what is in the folder.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from libs.runtime.fatal import Fatal

_MIB = 2**20

# Its standard input ends when nobody holds the other side any more, however that came about.
# Who wrote into the folder may take a moment longer to die, and a file may come meanwhile.
_GUARD = """
import os, shutil, sys, time
sys.stdin.buffer.read()
for _ in range(50):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.lexists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


@asynccontextmanager
async def guarded_folder(prefix: str, *, room: int) -> AsyncGenerator[Path]:
    """A new one among the files that are not kept, on a disk with room for so many bytes."""
    folder = await asyncio.to_thread(_made, prefix, room)
    guard = None
    try:
        # A session of its own: neither Ctrl-C nor a terminal that closes is for it.
        guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _GUARD, str(folder)),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
            await guard.wait()


def _made(prefix: str, room: int) -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        where = tempfile.tempdir or "any of the usual places"
        raise Fatal(
            f"no folder for the files of the demo could be made in {where}: {error.strerror}; make"
            " room there, or let TMPDIR name a folder that can be written to"
        ) from error
    free = shutil.disk_usage(folder).free
    if free < room:
        folder.rmdir()
        raise Fatal(
            f"the files of the demo were to go below {folder.parent}, where {free / _MIB:.0f} MiB"
            f" are free and {room / _MIB:.0f} are needed; make room there, or let TMPDIR name"
            " another folder"
        )
    return folder
