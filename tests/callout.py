"""A small sign-in for tests: it admits whoever presents a known token."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

from libs.bus.callout import CalloutKeys, SignInRequest, Unreadable, new_seeds
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.callout import answer_sign_ins, send
from libs.bus.server_config import SignIn, User, new_nkey
from libs.bus.sessions import Session, session_name
from libs.contracts.identities import Identity, Writer
from libs.testing.simulation import make_env

SIGN_IN = Identity(writer=Writer.SIGN_IN)


class TokenSignIn:
    """Tokens by identity, the keys of the callout, and what was answered."""

    def __init__(self, identities: Iterable[Identity]) -> None:
        self.seeds = new_seeds()
        self.keys = CalloutKeys.from_seeds(*self.seeds)
        self.nkey = new_nkey()
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
        self._sending: set[asyncio.Task[None]] = set()

    def settings(self) -> SignIn:
        """Return what the server's configuration must say."""
        return SignIn(
            issuer=self.keys.public_signing,
            xkey=self.keys.public_xkey,
            users=(User(identity=SIGN_IN, public_key=self.nkey.public),),
            identities=len(self.tokens),
        )

    @asynccontextmanager
    async def run(self, url: str, *, ca_file: str = "") -> AsyncGenerator[NatsBus]:
        """Answer requests until the end of the block; yield the connection."""
        async with connect(
            url=url,
            identity=SIGN_IN,
            env=make_env(),
            credentials=Credentials(nkey_seed=self.nkey.seed, ca_file=ca_file),
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
