"""A folder of a real node in memory, which outlives a power cut of the node.

Images are thousands of small files. On disk, their removal takes up to 15 s per node.
"""

from pathlib import Path
from typing import Self

from libs.testing.child_process import ChildProcess
from libs.testing.netns import program

_HOLD = 'mount -t tmpfs memory "$1" && echo mounted && exec sleep 2147483647'


class MemoryDisk:
    """Lasts until `stop`, or the end of this thread; only what enters it sees what is there."""

    def __init__(self, holder: ChildProcess) -> None:
        self._holder = holder

    @classmethod
    async def start(cls, name: str, folder: Path) -> Self:
        """Mount a memory file system over this folder, in a mount namespace of its own."""
        holder = await ChildProcess.start(
            name,
            *(program("unshare"), "--mount", "--propagation=private"),
            *("sh", "-c", _HOLD, "hold", str(folder)),
        )
        await holder.wait_for_log("mounted")
        return cls(holder)

    def command(self, *argv: str) -> list[str]:
        """Return a command that runs another one where the folder is mounted."""
        return [program("nsenter"), f"--mount=/proc/{self._holder.pid}/ns/mnt", *argv]

    async def stop(self) -> None:
        """Drop what is in the folder."""
        await self._holder.destroy()
