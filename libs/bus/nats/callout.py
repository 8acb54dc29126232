"""Receive the requests of nats-server's auth callout, and send the answers.

The processes of sign-in share the requests. An answer is sent at most once: without one the server
refuses the client, which tries again.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from libs.bus.nats.bus import NatsBus
from libs.bus.nats.pending import Msg
from libs.bus.port import Closable
from libs.contracts import subjects

GROUP: Final = "sign-in"

SignInHandler: TypeAlias = Callable[[bytes, str, str], None]
"""Takes the request, the server's curve key and the reply subject. Must not block."""

_XKEY: Final = "Nats-Server-Xkey"


async def answer_sign_ins(bus: NatsBus, handler: SignInHandler) -> Closable:
    """Receive requests until closed; `libs.bus.callout` reads them, `send` takes the answers."""

    def received(msg: Msg) -> None:
        handler(msg.data, (msg.headers or {}).get(_XKEY, ""), msg.reply)

    return await bus.subscribe_messages(subjects.SIGN_IN_REQUESTS, received, group=GROUP)


async def send(bus: NatsBus, reply: str, answer: bytes) -> None:
    """Send an answer, or raise `BusUnavailable`."""
    await bus.publish(reply, answer)
