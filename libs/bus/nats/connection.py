"""Calls and subscriptions on one connection to NATS, with workarounds for nats-py.

While disconnected, every call fails at once and nothing is buffered. A permission violation raises
an error in the call that caused it. A request fails as soon as no answer can come any more.
"""

import asyncio
import secrets
from typing import Any

from nats.errors import Error as NatsError

from libs.bus.nats.base_connection import FLUSH_SECONDS, BaseConnection
from libs.bus.nats.pending import Callback, Msg, NatsSubscription, PendingRequest
from libs.bus.port import BusUnavailable, NoResponders
from libs.bus.rates import Admits

SEND_BUFFER = 512 * 1024
"""Pending bytes above which `publish` waits for the server."""


class Connection(BaseConnection):
    async def publish(self, subject: str, data: bytes) -> None:
        """Send now, or raise `BusUnavailable`."""
        self._require_connected(subject)
        try:
            await self._client.publish(subject, data)
            if self._client.pending_data_size > SEND_BUFFER:
                await self._client.flush(FLUSH_SECONDS)
        except (NatsError, OSError, TimeoutError) as error:
            raise BusUnavailable(f"{subject}: not sent: {error or type(error).__name__}") from None

    def _require_connected(self, subject: str) -> None:
        if not (self._opened and self._client.is_connected):
            raise BusUnavailable(f"{subject}: not sent: NATS at {self.url} is unreachable")

    async def request(
        self, subject: str, data: bytes, *, timeout: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Return the first answer; raise `NoResponders` when the server reports that."""
        self._require_connected(subject)
        with self._requests.open(subject, timeout=timeout) as request:
            await self._send_request(request, data, headers)
            answer = await request.answer
        _require_responders(subject, answer)
        return answer

    async def request_all(self, subject: str, data: bytes, within: float) -> list[Msg]:
        """Return every answer that arrives within this time; raise `NoResponders`."""
        self._require_connected(subject)
        with self._requests.open(subject, timeout=2 * within) as request:
            gathered = self._requests.gather(request)
            await self._send_request(request, data, None)
            # The future ends early only with an error.
            await asyncio.wait({request.answer}, timeout=within)
            if request.answer.done():
                request.answer.result()
        for answer in gathered:
            _require_responders(subject, answer)
        return gathered

    async def _send_request(
        self, request: PendingRequest, data: bytes, headers: dict[str, str] | None
    ) -> None:
        try:
            reply = f"{self._inbox}.{request.token}"
            await self._client.publish(request.subject, data, reply=reply, headers=headers)
        except (NatsError, OSError) as error:
            raise BusUnavailable(
                f"{request.subject}: not sent: {error or type(error).__name__}"
            ) from None

    async def subscribe(
        self, subject: str, callback: Callback, *, group: str = "", admits: Admits | None = None
    ) -> NatsSubscription:
        """Subscribe; raise `SubjectForbidden` if the server denies it."""
        self._require_connected(subject)

        async def guarded(msg: Any) -> None:
            try:
                await callback(msg)
            except Exception as error:  # noqa: BLE001  (nats-py would only log it)
                self.fail(error)

        return await self._subscriptions.add(
            self._client, subject, guarded, group=group, admits=admits
        )

    def inbox(self) -> str:
        """Return a new subject to which only this identity may subscribe."""
        return f"{self._inbox}.{secrets.token_hex(8)}.x"


def _require_responders(subject: str, answer: Msg) -> None:
    if answer.headers and not answer.data and answer.headers.get("Status") == "503":
        raise NoResponders(f"{subject}: no process answers on this subject")
