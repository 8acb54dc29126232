"""The role of sign-in: several processes share nats-server's requests, and none leads."""

from typing import Final

from libs.bus.connect import NatsSettings, connect_bus
from libs.bus.connections import ConnectionMonitor
from libs.bus.nats.bus import NatsBus
from libs.bus.nats.callout import answer_sign_ins, send
from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.kube.connect import connect
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.process import Process
from libs.runtime.program import Role
from libs.runtime.service import Service
from libs.runtime.watchdog import Watchdog
from services.cluster_role import ClusterSettings
from services.signin.key_files import KeyFiles, SeedFiles
from services.signin.key_sources import KeySettings, open_source
from services.signin.parts import SignInParts

MANAGER: Final = "sluice-sign-in"
OBJECTS_SECONDS: Final = 15.0
"""Seconds to wait for the cluster's objects before the first answer; without them each token is
reviewed by the API server first."""
_POLL: Final = 0.1

_log = logger()


class SignInNatsSettings(NatsSettings, frozen=True, kw_only=True):
    """Sign-in connects with a key: it cannot be admitted by itself."""

    nkey_seed_file: str = ""
    """Seed of a user whose key is in nats-server's configuration."""


class SignInSettings(ClusterSettings, frozen=True, kw_only=True):
    nats: SignInNatsSettings = SignInNatsSettings()
    namespace: str
    """Namespace of Sluice's ServiceAccounts and pods."""
    tokens: KeySettings = KeySettings()
    signing_seed_file: str
    """Seed of the key whose public part is the `issuer` of nats-server's auth callout."""
    xkey_seed_file: str
    """Seed of the curve key whose public part is the `xkey` there."""
    next_signing_seed_file: str = ""
    """The pair of keys to which nats-server will be changed next."""
    next_xkey_seed_file: str = ""

    def __post_init__(self) -> None:
        if bool(self.next_signing_seed_file) != bool(self.next_xkey_seed_file):
            raise ValueError(
                "next_signing_seed_file and next_xkey_seed_file are a pair: set both or neither"
            )

    def seed_files(self) -> tuple[SeedFiles, ...]:
        pairs = (
            SeedFiles(self.signing_seed_file, self.xkey_seed_file),
            SeedFiles(self.next_signing_seed_file, self.next_xkey_seed_file),
        )
        return tuple(pair for pair in pairs if pair.signing)


async def start(process: Process[SignInSettings], service: Service) -> None:
    """Start one process of sign-in.

    Its seeds come first: a process with wrong ones ends with that as the reason, and not with a
    server that does not answer. The watchdog comes last: from there on clients wait for answers,
    which a loop that hangs would let run out, one after another.
    """
    settings = process.settings
    key_files = KeyFiles(settings.seed_files(), clock=process.env.clock)
    await key_files.load()
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await connect_bus(
        process=process, service=service, settings=settings.nats, writer=Writer.SIGN_IN
    )
    await service.enter("watchdog", Watchdog())
    await run(settings, key_files=key_files, env=process.env, bus=bus, kube=kube, service=service)


async def run(
    settings: SignInSettings,
    *,
    key_files: KeyFiles,
    env: Env,
    bus: NatsBus,
    kube: Transport,
    service: Service,
) -> None:
    """Start to answer requests, once enough is known to judge them.

    At the end no more requests are taken, and then those that were are answered: their clients
    would wait for the server's ten seconds otherwise. Another process answers the next ones.
    """
    source = await open_source(settings.tokens, kube=kube, clock=env.clock, service=service)
    monitor = ConnectionMonitor(bus=bus, env=env)

    async def answer(reply: str, data: bytes) -> None:
        await send(bus, reply, data)

    parts = SignInParts(
        Kube(kube, manager=MANAGER, clock=env.clock),
        key_files=key_files,
        source=source,
        connections=monitor,
        namespace=settings.namespace,
        cluster=bus.identity.cluster,
        send=answer,
        env=env,
    )
    service.ready_when("keys", parts.trusted.unready_reason)
    service.run_forever("key files", key_files.run())
    service.run_forever("connections", monitor.run())
    # Readiness does not ask for the cluster's objects: without them each token is reviewed first.
    for name, task in parts.tasks():
        service.run_forever(name, task)
    await _until_informed(parts, env)
    subscription = await answer_sign_ins(bus, parts.responder.received)

    async def stop_receiving() -> None:
        await subscription.close()
        await parts.responder.drain()

    service.on_drain("sign-ins", stop_receiving)


async def _until_informed(parts: SignInParts, env: Env) -> None:
    """Wait for the keys, without which no client is admitted, and a while for the objects."""
    until = env.clock.monotonic() + OBJECTS_SECONDS
    while parts.trusted.issuer is None:
        await env.clock.sleep(_POLL)
    while (missing := parts.objects.why_not_synced()) and env.clock.monotonic() < until:
        await env.clock.sleep(_POLL)
    if missing:
        _log.warning("sign-ins are answered before the cluster's objects are known", why=missing)


SERVER: Final = Role(SignInSettings, start)
