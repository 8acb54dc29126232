"""The keys of sign-in, and a NATS server with a small sign-in that admits known tokens.

    sign_in = TokenSignIn(identities, folder)
    async with signed_nats(sign_in) as server:
        connect(url=server.url, identity=…, credentials=sign_in.credentials(identity), …)

The server asks as it asks `services.signin`; the rights are those of the real one. What that does
beyond (signatures, pods, reviews) is left out.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from libs.bus.callout import CalloutKeys, SignInRequest, Unreadable, new_seeds
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.callout import answer_sign_ins, send
from libs.bus.server_config import SignIn, new_nkey, server_config
from libs.bus.sessions import Session, session_name
from libs.contracts.identities import Identity, Writer
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

SIGN_IN = Identity(writer=Writer.SIGN_IN)


class SignInKeys:
    """The keys of sign-in, its seeds in files of a folder, as an installation has them."""

    def __init__(self, folder: Path) -> None:
        self.seeds = new_seeds()
        self.nkey = new_nkey()
        names = ("signing", "xkey", "nkey")
        self._files = {name: folder / name for name in names}
        for file, seed in zip(self._files.values(), (*self.seeds, self.nkey.seed), strict=True):
            file.touch(mode=0o600)
            file.write_text(seed)

    def settings(
        self, *, identities: int, seeds: tuple[str, str] | None = None, timeout: int = 10
    ) -> SignIn:
        """Return what the server's configuration must say; `seeds` are by default the own ones."""
        keys = CalloutKeys.from_seeds(*(seeds or self.seeds))
        return SignIn(
            issuer=keys.public_signing,
            xkey=keys.public_xkey,
            keys=(self.nkey.public,),
            identities=identities,
            timeout=timeout,
        )

    def config(
        self, *, identities: int, seeds: tuple[str, str] | None = None, timeout: int = 10
    ) -> str:
        """Return the configuration of a server without TLS that asks this sign-in."""
        return server_config(self.settings(identities=identities, seeds=seeds, timeout=timeout))

    @property
    def files(self) -> dict[str, str]:
        """The settings of a process of sign-in that name the files."""
        return {
            "signing_seed_file": str(self._files["signing"]),
            "xkey_seed_file": str(self._files["xkey"]),
            "nats_nkey_seed_file": str(self._files["nkey"]),
        }


class TokenSignIn:
    """Tokens by identity, the keys of the callout, and what was answered."""

    def __init__(self, identities: Iterable[Identity], folder: Path) -> None:
        """`folder` gets the seeds of sign-in and the tokens, each in a file."""
        self.own = SignInKeys(folder)
        self.keys = CalloutKeys.from_seeds(*self.own.seeds)
        self.tokens = {identity: secrets.token_hex(8) for identity in identities}
        self.pods = {
            token: Session(identity, f"pod-{number}")
            for number, (identity, token) in enumerate(self.tokens.items())
        }
        """The pod that each token was made for; it may be changed."""
        self.lifetime = 3600
        """Seconds after which the server closes a connection that was admitted."""
        self.delay = 0.0
        """Seconds before an answer is sent."""
        self.admitted: list[str] = []
        self.refused: list[SignInRequest] = []
        self.unreadable: list[str] = []
        self._folder = folder
        self._sending: set[asyncio.Task[None]] = set()

    def settings(self) -> SignIn:
        """Return what the server's configuration must say."""
        return self.own.settings(identities=len(self.tokens))

    def config(self) -> str:
        """Return the configuration of a server without TLS that asks this sign-in."""
        return server_config(self.settings())

    def credentials(self, identity: Identity, *, ca_file: str = "") -> Credentials:
        """Return how this identity connects, with its token in a file."""
        file = self._folder / f"{str(identity).replace('/', '.')}.token"
        file.write_text(self.tokens[identity])
        return Credentials(token_file=str(file), ca_file=ca_file)

    def session(self, identity: Identity) -> Session:
        """Return the session of an identity; the server names its user so."""
        return self.pods[self.tokens[identity]]

    @asynccontextmanager
    async def run(self, url: str, *, ca_file: str = "") -> AsyncGenerator[NatsBus]:
        """Answer requests until the end of the block; yield the connection."""
        seed = self.own.files["nats_nkey_seed_file"]
        async with connect(
            url=url,
            identity=SIGN_IN,
            env=make_env(),
            credentials=Credentials(nkey_seed_file=seed, ca_file=ca_file),
            wait=60.0,
        ) as bus:

            def received(data: bytes, server_xkey: str, reply: str) -> None:
                answer = self._answer(data, server_xkey)
                if answer is not None:
                    task = asyncio.create_task(self._send(bus, reply, answer))
                    self._sending.add(task)
                    task.add_done_callback(self._sending.discard)

            subscription = await answer_sign_ins(bus, received)
            yield bus
            await subscription.close()

    async def _send(self, bus: NatsBus, reply: str, answer: bytes) -> None:
        await asyncio.sleep(self.delay)
        await send(bus, reply, answer)

    def _answer(self, data: bytes, server_xkey: str) -> bytes | None:
        now = time.time()
        try:
            request = self.keys.open(data, server_xkey=server_xkey, now=now, max_age=9)
        except Unreadable as error:
            self.unreadable.append(str(error))
            return None
        pod = self.pods.get(request.token)
        if pod is None:
            self.refused.append(request)
            return self.keys.refuse(request, "the token is unknown")
        name = session_name(pod.identity, pod.pod_uid)
        self.admitted.append(name)
        return self.keys.grant(
            request, pod.identity, session=name, expires=int(now) + self.lifetime
        )


@asynccontextmanager
async def signed_nats(sign_in: TokenSignIn) -> AsyncGenerator[NatsServer]:
    """Run a server without TLS, and sign-in on it."""
    async with NatsServer(config=sign_in.config()) as server, sign_in.run(server.url):
        yield server
