"""The role of sign-in: several processes share nats-server's requests, and none leads."""

from typing import Final

from libs.bus.connect import NatsSettings, connect_bus
from libs.bus.connections import ConnectionMonitor
from libs.bus.nats.bus import NatsBus
from libs.bus.nats.callout import answer_sign_ins, send
from libs.contracts.identities import Writer
from libs.kube.client import Kube
from libs.kube.connect import connect
from libs.kube.informer import run_informers
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.process import Process
from libs.runtime.program import Role
from libs.runtime.service import Service
from libs.runtime.watchdog import Watchdog
from services.cluster_role import ClusterSettings
from services.signin.gate import Gate
from services.signin.key_files import KeyFiles, SeedFiles
from services.signin.key_sources import KeySettings, open_source
from services.signin.keys import TrustedKeys
from services.signin.metrics import SignInMetrics
from services.signin.objects import ClusterObjects
from services.signin.responder import Responder
from services.signin.reviews import BackgroundReviews, TokenReviews
from services.signin.revocation import Revocation

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
    metrics = SignInMetrics(env.metrics)
    cluster = bus.identity.cluster
    source = await open_source(settings.tokens, kube=kube, clock=env.clock, service=service)
    trusted = TrustedKeys(source, env=env)
    client = Kube(kube, manager=MANAGER, clock=env.clock)
    objects = ClusterObjects(client, namespace=settings.namespace, env=env)
    monitor = ConnectionMonitor(bus=bus, env=env)
    revocation = Revocation(objects, monitor, cluster=cluster, clock=env.clock, metrics=metrics)
    reviews = TokenReviews(client, metrics=metrics)
    background = BackgroundReviews(reviews, env=env, refused=revocation.refuse, metrics=metrics)
    gate = Gate(
        keys=trusted,
        objects=objects,
        reviews=reviews,
        background=background,
        connections=monitor,
        namespace=settings.namespace,
        cluster=cluster,
        clock=env.clock,
        metrics=metrics,
    )

    async def answer(reply: str, data: bytes) -> None:
        await send(bus, reply, data)

    responder = Responder(keys=key_files, gate=gate, send=answer, env=env, metrics=metrics)
    service.ready_when("keys", trusted.unready_reason)
    service.run_forever("keys of tokens", trusted.run())
    service.run_forever("key files", key_files.run())
    # Readiness does not ask for them: without them each token is reviewed first.
    run_informers(objects.all(), service)
    service.run_forever("connections", monitor.run())
    service.run_forever("revocation", revocation.run())
    service.run_forever("reviews", background.run())
    service.run_forever("answers", responder.run())
    await _until_informed(trusted, objects, env)
    subscription = await answer_sign_ins(bus, responder.received)

    async def stop_receiving() -> None:
        await subscription.close()
        await responder.drain()

    service.on_drain("sign-ins", stop_receiving)


async def _until_informed(trusted: TrustedKeys, objects: ClusterObjects, env: Env) -> None:
    """Wait for the keys, without which no client is admitted, and a while for the objects."""
    began = env.clock.monotonic()
    while trusted.issuer is None:
        await env.clock.sleep(_POLL)
    while (missing := objects.why_not_synced()) and env.clock.monotonic() < began + OBJECTS_SECONDS:
        await env.clock.sleep(_POLL)
    if missing:
        _log.warning("sign-ins are answered before the cluster's objects are known", why=missing)


SERVER: Final = Role(SignInSettings, start)
