"""Connect a service to NATS from its settings.

The service is not ready while the server is unreachable or a stream is not read, and fails when the
connection is closed for good.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.failures import ConnectFailures
from libs.bus.port import BusError, BusMisconfigured, SubjectForbidden
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import check_cluster
from libs.runtime.fatal import Fatal
from libs.runtime.process import Process
from libs.runtime.service import Service

SPREAD: Final = 10.0
"""Seconds over which agents that sign in spread their connects. It is the same for fleets of any
size, because sign-in and servers grow with the fleet (docs/sign-in.md says how), and ten seconds
more without agents are harmless: they are reported as silent after three minutes."""


_SIGN_IN: Final = (
    "since everybody but sign-in itself connects with a ServiceAccount token, NATS has no keys of"
    " identities; remove it, and give SLUICE_NATS_TOKEN_FILE where no token is mounted"
    " (docs/sign-in.md)"
)


class NatsSettings(msgspec.Struct, frozen=True, kw_only=True):
    GONE: ClassVar[Mapping[str, str]] = {"nkey_seed_file": _SIGN_IN, "creds_file": _SIGN_IN}
    """Settings of earlier versions, and what to do without each."""

    url: str = "nats://127.0.0.1:4222"
    cluster: str = "default"
    node: str = ""
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def credentials(self) -> Credentials:
        return msgspec.convert(self, Credentials, from_attributes=True)

    @property
    def spread(self) -> float:
        """Return the seconds over which the agents of a fleet spread their connects."""
        return SPREAD if self.node and self.credentials.signs_in else 0.0


async def connect_bus(
    *,
    process: Process[Any],
    service: Service,
    settings: NatsSettings,
    writer: Writer,
    patience: float | None = None,
) -> NatsBus:
    """Connect as `writer` until the service ends; meanwhile the service tells why it waits.

    With `patience`, return without a connection after so many seconds; it is made when NATS is
    there.
    """
    failures = ConnectFailures(process.env.clock)
    bus: NatsBus | None = None
    service.ready_when(
        "nats", lambda: failures.reason or None if bus is None else bus.unready_reason()
    )
    try:
        check_cluster(settings.cluster)
        identity = Identity(cluster=settings.cluster, writer=writer, node=settings.node)
        bus = await service.enter(
            "nats",
            connect(
                url=settings.url,
                identity=identity,
                env=process.env,
                credentials=settings.credentials,
                wait=math.inf,
                spread=settings.spread,
                failures=failures,
                patience=patience,
            ),
        )
    except (BusError, ValueError) as error:
        raise Fatal(str(error)) from error
    service.run_forever("nats", _guard(bus))
    return bus


async def _guard(bus: NatsBus) -> None:
    try:
        await bus.guard()
    except (BusMisconfigured, SubjectForbidden, ValueError) as error:
        raise Fatal(str(error)) from error
