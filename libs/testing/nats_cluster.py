"""A cluster of three real nats-servers on the loopback, with TLS for clients and routes."""

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from libs.bus.server_config import ServerCluster, Tls
from libs.testing.certificates import CertificateAuthority
from libs.testing.child_process import HOST, ReservedPort
from libs.testing.nats import NatsServer

SIZE = 3

Configure = Callable[[Tls, ServerCluster | None], str]
"""Returns the configuration of a server, which becomes part of the cluster if there is one."""


class NatsCluster:
    """Three servers; each keeps its ports and store until the end of the block."""

    def __init__(
        self,
        *,
        servers: dict[str, NatsServer],
        configs: Mapping[str, str],
        routes: tuple[str, ...],
        authority: CertificateAuthority,
        ca_file: str,
    ) -> None:
        self.servers = servers
        """By name."""
        self._configs = configs
        self.routes = routes
        self.authority = authority
        self.ca_file = ca_file

    @property
    def url(self) -> str:
        """The addresses of all servers."""
        return ",".join(self.url_of(name) for name in self.servers)

    def url_of(self, name: str) -> str:
        return f"tls://{HOST}:{self.servers[name].port}"

    async def grow(self) -> None:
        """Add two servers to the only one, and make a cluster of them, as a StatefulSet does."""
        first, *others = self.servers
        await asyncio.gather(*(self.servers[name].start() for name in others))
        await self.servers[first].restart(self._configs[first])


@asynccontextmanager
async def nats_cluster(configure: Configure, *, grows: bool = False) -> AsyncGenerator[NatsCluster]:
    """Run a cluster until the end of the block; if it grows, only its first server to begin with.

    A server's name is its tag too.
    """
    async with AsyncExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="sluice-ca-")))
        authority = CertificateAuthority()
        ca_file = authority.write(folder / "ca.pem")
        pair = authority.issue(folder, "nats")
        tls = Tls(cert_file=str(pair.cert_file), key_file=str(pair.key_file), ca_file=str(ca_file))
        ports = [ReservedPort() for _ in range(SIZE)]
        for port in ports:
            ends.callback(port.release)
        routes = tuple(f"nats-route://localhost:{port.number}" for port in ports)
        configs: dict[str, str] = {}
        servers: dict[str, NatsServer] = {}
        for number, port in enumerate(ports):
            name = f"nats-{number}"
            own = f"server_name: {json.dumps(name)}\nserver_tags: [{json.dumps(name)}]\n"
            described = ServerCluster(
                name="sluice", listen=f"{HOST}:{port.number}", routes=routes, size=SIZE
            )
            configs[name] = own + configure(tls, described)
            alone = grows and number == 0
            server = NatsServer(
                config=own + configure(tls, None) if alone else configs[name],
                starts=alone or not grows,
            )
            servers[name] = await ends.enter_async_context(server)
        yield NatsCluster(
            servers=servers,
            configs=configs,
            routes=routes,
            authority=authority,
            ca_file=tls.ca_file,
        )
