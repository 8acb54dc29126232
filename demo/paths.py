"""The folder that the processes of the demo share, and the names of the files in it."""

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from libs.contracts.identities import Identity
from libs.runtime.fatal import Fatal

NAMESPACE = "gpu-operator"
FOLDERS = (
    "bin",
    "users",
    "keys",
    "tokens",
    "machines",
    "gpus",
    "incidents",
    "kill-lists",
    "finished-jobs",
    "ended",
)
"""The folders in it."""
KILL_AGENTS_SIGNAL = signal.SIGUSR1
"""At this signal machines kill the agents named in their `kill_list`."""
_MIB = 2**20

# Standard input ends with the demo, even after kill -9. Processes that write into the folder may
# take a moment longer to end, and may add files meanwhile.
_GUARD = """
import os, shutil, sys, time
sys.stdin.buffer.read()
for _ in range(50):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.lexists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


NO_LOG = "The demo simulates this container; only those that load a driver write a log."


class DemoPaths(msgspec.Struct, frozen=True):
    """The paths below the folder."""

    folder: Path

    def kubeconfig(self, user: str) -> Path:
        return self.users / f"{user.replace(':', '-')}.kubeconfig"

    @property
    def environment(self) -> Path:
        """What a shell reads to use the command on this run."""
        return self.folder / "env"

    @property
    def programs(self) -> Path:
        """Links to the programs that are used on this run."""
        return self.folder / "bin"

    @property
    def keys(self) -> Path:
        """The folder with the keys of sign-in."""
        return self.folder / "keys"

    def token(self, identity: Identity) -> Path:
        """The token with which an identity signs in to NATS."""
        return self.folder / "tokens" / f"{identity.node or 'cluster'}.{identity.writer.value}"

    def machine(self, name: str) -> Path:
        """The root of a simulated machine's files."""
        return self.folder / "machines" / name

    def gpus(self, name: str) -> Path:
        """The state of a machine's GPUs, where a stand-in for NVML shows them."""
        return self.folder / "gpus" / name

    def incidents(self, name: str) -> Path:
        """Observed violations on a machine, one per line."""
        return self.folder / "incidents" / name

    def kill_list(self, name: str) -> Path:
        """Names of the agents to kill on a machine."""
        return self.folder / "kill-lists" / name

    def driver_log(self, container_id: str) -> Path:
        """What the container of a driver has written."""
        return self.folder / "driver-logs" / container_id.rpartition("/")[2]

    def container_log(self, container_id: str) -> list[str]:
        """Return what a container has written, or that the demo simulates all of it."""
        file = self.driver_log(container_id)
        return file.read_text().splitlines() if file.exists() else [NO_LOG]

    def finished_jobs(self, name: str) -> Path:
        """Names of jobs whose work on a machine is done."""
        return self.folder / "finished-jobs" / name

    @property
    def bad_drivers(self) -> Path:
        """Labels of drivers that load on no machine, one per line."""
        return self.folder / "bad-drivers"

    @property
    def users(self) -> Path:
        """Kubeconfigs of all users of the API server."""
        return self.folder / "users"

    @property
    def revisions(self) -> Path:
        """The journal of the API server, one revision per line."""
        return self.folder / "revisions"

    def log_of_ended(self, process: str, number: int) -> Path:
        """What a service had logged when it ended by itself for this time."""
        return self.folder / "ended" / f"{process}-{number}.log"

    @property
    def audit_log(self) -> Path:
        """The audit log of the simulated API server."""
        return self.folder / "audit.log"


def kubelet_users(node: str) -> tuple[str, ...]:
    """Return the API server's users of a machine."""
    return (f"system:node:{node}", "system:kubelets")


def service_account(service: str) -> str:
    """Return the API server's user of a service's cluster role."""
    return f"system:serviceaccount:{NAMESPACE}:sluice-{service}"


@asynccontextmanager
async def guarded_folder(prefix: str, *, room: int) -> AsyncGenerator[Path]:
    """Create a temporary folder on a disk with `room` bytes free, and remove it at the end.

    A separate process removes the folder if this process is killed.
    """
    folder = await asyncio.to_thread(_make_folder, prefix, room)
    guard = None
    try:
        # In a session of its own, the guard survives Ctrl-C and the end of the terminal.
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


def _make_folder(prefix: str, room: int) -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        folders = tempfile.tempdir or "any of the usual places"
        raise Fatal(
            f"cannot create a folder for the demo in {folders}: {error.strerror};"
            " free space there, or set TMPDIR to a writable folder"
        ) from error
    free = shutil.disk_usage(folder).free
    if free < room:
        folder.rmdir()
        raise Fatal(
            f"the demo needs {room / _MIB:.0f} MiB below {folder.parent}, where"
            f" {free / _MIB:.0f} MiB are free; free space there, or set TMPDIR to another folder"
        )
    return folder
