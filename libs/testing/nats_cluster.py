"""A cluster of three real nats-servers on the loopback, with TLS for clients and routes."""

import json
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from libs.bus.server_config import ServerCluster, Tls
from libs.testing.certificates import CertificateAuthority
from libs.testing.child_process import HOST, ReservedPort
from libs.testing.nats import NatsServer

SIZE = 3

Configure = Callable[[Tls, ServerCluster], str]
"""Returns the configuration of a server, which becomes part of the cluster."""


class NatsCluster:
    """Three servers; each keeps its ports and store until the end of the block."""

    def __init__(
        self,
        *,
        servers: dict[str, NatsServer],
        routes: tuple[str, ...],
        authority: CertificateAuthority,
        ca_file: str,
    ) -> None:
        self.servers = servers
        """By name."""
        self.routes = routes
        self.authority = authority
        self.ca_file = ca_file

    @property
    def url(self) -> str:
        """The addresses of all servers."""
        return ",".join(self.url_of(name) for name in self.servers)

    def url_of(self, name: str) -> str:
        return f"tls://{HOST}:{self.servers[name].port}"


@asynccontextmanager
async def nats_cluster(configure: Configure) -> AsyncGenerator[NatsCluster]:
    """Run a cluster until the end of the block."""
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
        servers: dict[str, NatsServer] = {}
        for number, port in enumerate(ports):
            name = f"nats-{number}"
            described = ServerCluster(
                name="sluice", listen=f"{HOST}:{port.number}", routes=routes, size=SIZE
            )
            config = f"server_name: {json.dumps(name)}\n{configure(tls, described)}"
            servers[name] = await ends.enter_async_context(NatsServer(config=config))
        yield NatsCluster(servers=servers, routes=routes, authority=authority, ca_file=tls.ca_file)
