"""Debian's dockerd in namespaces of its own: `make docker` fetches it, once.

Nothing of it is on the machine's network, or in its `/etc`, `/opt` and `/run`. Containers reach
each other by address; names need hosts that a container is given, because Docker's resolver needs
iptables, which not every kernel has.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from libs.testing import debian, go_build
from libs.testing.child_process import HOST, ChildProcess, ReservedPort
from libs.testing.go_build import run_command
from libs.testing.netns import NetworkNamespace, OwnNamespace, Relay, program
from libs.testing.owned_folder import OwnedFolder, abandoned_folders
from libs.testing.realnodes.cgroups import remove_cgroups

COMMAND: Final = "make docker"
PREFIX: Final = "sluice-docker-"

_PACKAGES: Final = (
    *("docker.io", "containerd", "runc", "tini", "iptables", "libdevmapper1.02.1"),
    *("libbtrfs0", "libip4tc2", "libip6tc2", "libmnl0", "libnetfilter-conntrack3"),
    *("libnfnetlink0", "libnftnl11", "libseccomp2", "libxtables12"),
)
_RECIPE: Final = "1"
"""Raise it when the same packages give another folder."""
_READY: Final = "API listen on"
_START: Final = """
set -e
mount -t tmpfs tmpfs /run
mkdir "$WORK/data"
mount -t tmpfs tmpfs "$WORK/data"
for name in etc opt; do
  mkdir "$WORK/$name" "$WORK/$name-work"
  layers="lowerdir=/$name,upperdir=$WORK/$name,workdir=$WORK/$name-work"
  mount -t overlay overlay -o "$layers" "/$name"
done
exec dockerd --data-root "$WORK/data" --exec-root "$WORK/exec" --pidfile "$WORK/dockerd.pid" \\
    --host "unix://$WORK/docker.sock" --cgroup-parent "/$GROUP" \\
    --iptables=false --ip6tables=false --ip-masq=false
"""


class Docker:
    """A daemon, until the end of its block."""

    def __init__(self, socket: Path, network: NetworkNamespace, relays: AsyncExitStack) -> None:
        self.url = f"unix://{socket}"
        self.network = network
        self._relays = relays

    async def reach(self, address: str, port: int) -> int:
        """Return a port of the loopback that leads to a port of a container."""
        reserved = ReservedPort()
        self._relays.callback(reserved.release)
        at = (HOST, reserved.number)
        relay = await Relay.start(at, (address, port), connects_in=self.network)
        self._relays.push_async_callback(relay.stop)
        return reserved.number


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[Docker]:
    """Run the daemon of this folder; its containers and images end with the block."""
    for left in abandoned_folders(PREFIX):
        remove_cgroups(left.name)
    async with AsyncExitStack() as ends:
        owned = OwnedFolder(PREFIX)
        ends.callback(owned.remove)
        work = owned.path
        ends.callback(remove_cgroups, work.name)
        network = await OwnNamespace.start("network of Docker")
        ends.push_async_callback(network.stop)
        await network.run("ip", "link", "set", "lo", "up")
        daemon = await ChildProcess.start(
            "dockerd",
            *network.command(program("env"), *_environment(folder, work)),
            *(program("unshare"), "--mount", "--pid", "--fork", "--kill-child=SIGKILL"),
            *("--mount-proc", "--propagation=private", "sh", "-c", _START),
        )
        ends.push_async_callback(daemon.destroy)
        await daemon.wait_for_log(_READY, within=60.0)
        relays = await ends.enter_async_context(AsyncExitStack())
        yield Docker(work / "docker.sock", network, relays)


def _environment(folder: Path, work: Path) -> list[str]:
    programs = f"{folder}/usr/bin:{folder}/usr/sbin:{os.environ.get('PATH', '')}"
    libraries = ":".join(str(each) for each in folder.glob("**/*-linux-gnu") if each.is_dir())
    return [
        *(f"PATH={programs}", f"LD_LIBRARY_PATH={libraries}"),
        *(f"WORK={work}", f"GROUP={work.name}"),
    ]


def cache_folder(environ: Mapping[str, str]) -> Path:
    return go_build.cache_folder(environ, "dockerd", "debian", [], _RECIPE)


def find_dockerd(environ: Mapping[str, str]) -> Path | None:
    """Return the folder that the command filled, or None where it has not run."""
    folder = cache_folder(environ)
    return folder if (folder / "usr/sbin/dockerd").is_file() else None


def fetch(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the folder with Docker's programs, of Debian's packages, filling it if needed."""
    folder = cache_folder(environ)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        filled = Path(temporary) / "filled"
        filled.mkdir()
        report("Debian's packages …")
        debian.unpack(_PACKAGES, filled)
        shutil.rmtree(filled / "usr/share", ignore_errors=True)
        try:
            filled.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    return folder


def main() -> int:
    """Fetch the programs; return the exit status."""
    return run_command(
        lambda report: fetch(os.environ, report=report), command=COMMAND, what="Docker is"
    )


if __name__ == "__main__":
    sys.exit(main())
