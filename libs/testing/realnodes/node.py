"""One real node: kubelet and containerd in a set of namespaces."""

import asyncio
import json
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing.child_process import ChildProcess
from libs.testing.errors import ServerFailed
from libs.testing.netns import NetworkNamespace, OwnNamespace, Relay, program
from libs.testing.owned_folder import OwnedFolder
from libs.testing.realkube.cluster import RealKube
from libs.testing.realnodes import config, init
from libs.testing.realnodes.build import Containerd, Programs
from libs.testing.realnodes.cgroups import CONTROLLERS, create_cgroups, remove_cgroups
from libs.testing.realnodes.init import InitSettings
from libs.testing.realnodes.memory_disk import MemoryDisk

PREFIX: Final = "sluice-node-"
"""The beginning of the names of a node's folder and cgroups."""
BRIDGE: Final = "nodes"
"""The interface of the control plane's network that connects the nodes."""

MACHINE: Final = "/opt/machine"
"""On a node, the folder `machine/` of its folder on the machine."""

_PROGRAMS: Final = ("containerd", "kubelet")
_LAST_LINES: Final = 5

_IN_MEMORY: Final = "/var/lib/containerd"
_DISKS: Final = (_IN_MEMORY, "/var/lib/kubelet", "/var/log/pods", "/var/lib/sluice")
"""Folders that survive a power cut."""

_WITHIN: Final = 300.0
"""Seconds, on the slowest machine: a node that has ended is noticed at once."""
_CHECK_EVERY: Final = 0.02
_CTR: Final = "/opt/containerd/ctr"
_IMPORT: Final = (_CTR, "--namespace=k8s.io", "images", "import", "--local")
_ENTER: Final = 'for file in $CGROUPS; do echo $$ > "$file"; done; exec "$@"'


class Node:
    """Runs from `start` to `stop`; `power_cut` is a reboot."""

    def __init__(
        self,
        index: int,
        *,
        programs: Programs,
        containerd: Containerd,
        kube: RealKube,
        network: OwnNamespace,
        nodes: int,
    ) -> None:
        self.index = index
        self.name = f"node-{index}"
        self.boot_id = ""
        self._programs = programs
        self._containerd = containerd
        self._kube = kube
        self._network = network
        self._nodes = nodes
        self._owned = OwnedFolder(PREFIX)
        self._process: ChildProcess | None = None
        self._memory: MemoryDisk | None = None
        self._relay: Relay | None = None
        self._pid = 0

    @property
    def folder(self) -> Path:
        """Return the folder of this node on the machine; `log/` has what its programs write."""
        return self._owned.path

    async def start(self, *, binds: Mapping[str, Path] | None = None) -> None:
        """Power on; `binds` are folders of the machine by their path on the node.

        Return when the network is there; containerd and the kubelet come up meanwhile.
        """
        self.boot_id = str(uuid.uuid4())
        if self._memory is None:
            images = init.disk_folder(self.folder, _IN_MEMORY)
            await asyncio.to_thread(images.mkdir, parents=True)
            self._memory = await MemoryDisk.start(f"images of {self.name}", images)
        settings = await asyncio.to_thread(self._write_settings, binds or {})
        tasks = await asyncio.to_thread(create_cgroups, self.folder.name)
        self._process = await ChildProcess.start(
            self.name,
            program("env"),
            f"CGROUPS={' '.join(map(str, tasks))}",
            *self._network.command(
                *self._memory.command("sh", "-c", _ENTER, "enter", program("unshare")),
                *("--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup"),
                *("--fork", "--kill-child=SIGKILL", "--propagation=private"),
                *(sys.executable, "-I", "-S", init.__file__, str(settings)),
            ),
        )
        await self._until(self._process_1_is_there)
        await self._connect()

    async def stop(self) -> None:
        """Power off, and remove the node with its disk."""
        await self._power_off()
        if self._memory:
            await self._memory.stop()
            self._memory = None
        await asyncio.to_thread(self._owned.remove)

    async def power_cut(
        self,
        *,
        binds: Mapping[str, Path] | None = None,
        powered_off: Callable[[], None] = lambda: None,
    ) -> None:
        """Cut the power, and power on again: another boot id, the same disk.

        `powered_off` is called between the two.
        """
        await self._power_off()
        powered_off()
        await self.start(binds=binds)

    async def run(self, *command: str) -> str:
        """Run a program in the node, as root; return its output."""
        process = await asyncio.create_subprocess_exec(
            *(program("nsenter"), f"--target={self._pid}", "--all", *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        text = output.decode(errors="replace")
        if process.returncode:
            raise ServerFailed(f"{' '.join(command)} failed on {self.name}: {text}")
        return text

    async def import_image(self, archive: Path) -> None:
        """Give an image of this machine to the node's containerd."""
        command = [*_IMPORT, "-"]
        with archive.open("rb") as image:
            process = await asyncio.create_subprocess_exec(
                *(program("nsenter"), f"--target={self._pid}", "--all", *command),
                stdin=image,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
        if process.returncode:
            text = output.decode(errors="replace")
            raise ServerFailed(f"{self.name} could not import {archive}: {text}")

    async def remove_image(self, name: str) -> None:
        """Take an image from the node's containerd; what runs of it goes on."""
        await self.run(_CTR, "--namespace=k8s.io", "images", "rm", "--sync", name)

    async def restart_kubelet(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End the kubelet; return when the next one serves."""
        await self._restart("kubelet", by, "bash", "-c", "</dev/tcp/127.0.0.1/10250")

    async def restart_containerd(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End containerd, without its containers; return when the next one serves."""
        await self._restart("containerd", by, _CTR, "version")

    async def stop_network(self) -> None:
        """Disconnect the node; its pods reach each other still."""
        await self._network.run("ip", "link", "set", self._veth, "down")

    async def start_network(self) -> None:
        """Connect the node again."""
        await self._network.run("ip", "link", "set", self._veth, "up")

    def log(self, name: str) -> str:
        """Return what a program of the node has written, such as `kubelet`; nothing before that."""
        file = self.folder / "log" / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def problem(self) -> str | None:
        """Return that the node has ended, with the last lines of its programs; nothing otherwise.

        A node without power has not ended.
        """
        process = self._process
        problem = process.problem() if process else None
        if problem is None:
            return None
        logs = {name: self.log(name).splitlines()[-_LAST_LINES:] for name in _PROGRAMS}
        return "\n".join([problem, *(f"  {name}: {line}" for name in logs for line in logs[name])])

    @property
    def _veth(self) -> str:
        return f"node{self.index}"

    async def _restart(self, name: str, by: signal.Signals, *serves: str) -> None:
        show = ("cat", f"/run/{name}.pid")
        old = await self.run(*show)
        await self.run("kill", f"-{by.value}", old)

        async def is_back() -> bool:
            return await self.run(*show) != old and await self._succeeds(*serves)

        await self._until(is_back)

    async def _succeeds(self, *command: str) -> bool:
        try:
            await self.run(*command)
        except ServerFailed:
            return False
        return True

    def _write_settings(self, binds: Mapping[str, Path]) -> Path:
        for name in ("root", "memory", "disk", "log", "machine"):
            (self.folder / name).mkdir(exist_ok=True)
        kubeconfig = json.loads(self._kube.kubeconfig(f"system:node:{self.name}").read_text())
        address, port = config.API_SERVER
        cluster = kubeconfig["clusters"][0]["cluster"]
        cluster["server"] = f"https://{address}:{port}"
        cluster["certificate-authority"] = "/etc/kubernetes/ca.crt"
        settings = InitSettings(
            name=self.name,
            folder=str(self.folder),
            controllers=list(CONTROLLERS),
            boot_id=self.boot_id,
            files={
                "/run/resolv.conf": "nameserver 127.0.0.1\n",
                "/etc/cni/net.d/10-pods.conflist": config.cni(self.index),
                "/etc/containerd/config.toml": config.containerd(self._containerd),
                "/etc/kubernetes/ca.crt": self._kube.ca_file.read_text(),
                "/etc/kubernetes/kubelet.json": config.kubelet(),
                "/etc/kubernetes/kubeconfig": json.dumps(kubeconfig),
            },
            binds={
                "/opt/node": str(self._programs.node),
                "/opt/containerd": str(self._programs.containerd(self._containerd)),
                "/opt/cni/bin": str(self._programs.node / "cni"),
                MACHINE: str(self.folder / "machine"),
                **{path: str(folder) for path, folder in binds.items()},
            },
            network=config.network(self.index, self._nodes),
            kubelet=[
                "kubelet",
                "--config=/etc/kubernetes/kubelet.json",
                "--kubeconfig=/etc/kubernetes/kubeconfig",
                f"--hostname-override={self.name}",
                f"--node-ip={config.node_address(self.index)}",
            ],
            disks=list(_DISKS),
        )
        file = self.folder / "settings.json"
        file.write_text(json.dumps(settings))
        return file

    async def _connect(self) -> None:
        """Give the node its interface, and the relay to the API server."""
        node = NetworkNamespace(self._pid)
        await self._until(self._old_interface_is_gone)
        await self._network.run(
            *("ip", "link", "add", self._veth, "type", "veth"),
            *("peer", "name", "eth0", "netns", str(self._pid)),
        )
        await self._network.run("ip", "link", "set", self._veth, "master", BRIDGE, "up")
        await self._until(lambda: _has_address(node))
        self._relay = await Relay.start(
            config.API_SERVER,
            _address(self._kube.url),
            listens_in=node,
            connects_in=self._network,
        )

    async def _old_interface_is_gone(self) -> bool:
        """Whether the interface has followed the namespace of its peer, which takes a moment."""
        return f" {self._veth}@" not in await self._network.run("ip", "-o", "link", "show")

    async def _process_1_is_there(self) -> bool:
        process = self._process
        first = [pid for pid in _children(process.pid) if _is_first(pid)] if process else []
        self._pid = first[0] if first else 0
        return bool(first)

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition, as long as the node lives."""
        async with asyncio.timeout(_WITHIN):
            while True:
                if await condition():
                    return
                if self._process:
                    _ = self._process.pid  # raises when it has ended
                await asyncio.sleep(_CHECK_EVERY)

    async def _power_off(self) -> None:
        if self._relay:
            await self._relay.stop()
            self._relay = None
        process, self._process = self._process, None
        if process:
            await process.destroy()
        await asyncio.to_thread(remove_cgroups, self.folder.name)


async def _has_address(node: NetworkNamespace) -> bool:
    """Whether the node has given itself the address of the API server."""
    return config.API_SERVER[0] in await node.run("ip", "-o", "addr", "show", "lo")


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("//")[2].partition(":")
    return host, int(port)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(child) for child in text.split()]


def _is_first(pid: int) -> bool:
    """Return whether this is process 1 of a namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    ids = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
    return len(ids) > 2 and ids[-1] == "1"
