"""Containers in one network of Docker, each at an address of its own."""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from libs.testing.dockerd import Docker

NETWORK: Final = "sluice"
GATEWAY: Final = "172.30.0.1"
"""The address of the network's namespace itself."""
_SUBNET: Final = "172.30.0.0/24"
NOTHING: Final[Mapping[str, str]] = {}


def address(index: int) -> str:
    """Return an address of the network; they are numbered from 0."""
    return f"172.30.0.{10 + index}"


class Containers:
    """Starts containers of testcontainers, which end with their daemon."""

    def __init__(self, docker: Docker, testcontainers: Any) -> None:
        self.docker = docker
        self._make: Any = testcontainers.DockerContainer
        self._client: Any = None
        self._started: list[Any] = []

    async def prepare(self, *archives: Path) -> None:
        """Load images, and make the network."""
        await asyncio.to_thread(self._prepare, archives)

    def _prepare(self, archives: tuple[Path, ...]) -> None:
        docker: Any = importlib.import_module("docker")  # comes with testcontainers
        self._client = docker.DockerClient(base_url=self.docker.url, timeout=120)
        for archive in archives:
            with archive.open("rb") as file:
                self._client.images.load(file)
        pool = docker.types.IPAMPool(subnet=_SUBNET, gateway=GATEWAY)
        ipam = docker.types.IPAMConfig(pool_configs=[pool])
        self._client.networks.create(NETWORK, driver="bridge", ipam=ipam)

    async def start(
        self,
        image: str,
        index: int,
        *command: str,
        folder: Path,
        hosts: Mapping[str, str],
        environ: Mapping[str, str] = NOTHING,
        writable: Sequence[str] = (),
        **limits: Any,
    ) -> Any:
        """Start a container at this address, with a folder of the machine at `/settings`.

        `writable` are empty folders that end with it.
        """
        endpoint = self._client.api.create_endpoint_config(ipv4_address=address(index))
        container = (
            self._make(image)
            .with_command(list(command))
            .with_envs(**environ)
            .with_volume_mapping(str(folder), "/settings", "ro")
            .with_kwargs(
                network=NETWORK,
                networking_config={NETWORK: endpoint},
                extra_hosts=dict(hosts),
                **limits,
            )
        )
        for path in writable:
            container.with_tmpfs_mount(path)
        await asyncio.to_thread(container.start)
        self._started.append(container.get_wrapped_container())
        return self._started[-1]

    def logs(self) -> str:
        """Return what all containers have written."""
        logs = ((each.attrs["Config"]["Cmd"], each.logs().decode()) for each in self._started)
        return "\n".join(f"== {' '.join(command)}\n{log}" for command, log in logs)
