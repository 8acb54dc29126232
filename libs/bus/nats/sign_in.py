"""What one connection presents to a NATS server: its files are read again for each try."""

import asyncio
from typing import Any

from libs.bus.addresses import parse_addresses
from libs.bus.credentials import Credentials
from libs.bus.nats.client import PatchedClient
from libs.bus.nats.transport import Dial
from libs.bus.token_renewal import TokenRenewal
from libs.runtime.env import Env


class SignIn:
    """The credentials of a connection; raises `BusMisconfigured` if they are unsafe with `url`."""

    def __init__(
        self, *, url: str, credentials: Credentials, env: Env, dial: Dial | None = None
    ) -> None:
        addresses = parse_addresses(url, credentials)
        self._urls = addresses.urls
        self._load_tls = credentials.tls if addresses.tls else None
        self._dial = dial
        self._credentials = credentials
        self._renewal = TokenRenewal(
            name=credentials.token_file, clock=env.clock, source=env.random
        )

    @property
    def is_refusal_final(self) -> bool:
        """Whether refused credentials stay refused.

        A token may be accepted later: the server says the same while the sign-in service is away.
        """
        return not self._credentials.signs_in

    def options(self) -> dict[str, Any]:
        """Return options of nats-py; raise `BusMisconfigured` for an unreadable file."""
        options = {"servers": list(self._urls), **self._credentials.options()}
        if self._load_tls is not None:
            self._load_tls()
        return options

    def new_client(self) -> PatchedClient:
        read_token = self._read_token if self._credentials.signs_in else None
        return PatchedClient(load_tls=self._load_tls, read_token=read_token, dial=self._dial)

    def trial_client(self) -> PatchedClient:
        """Return a client that does not count as the session."""
        return PatchedClient(
            load_tls=self._load_tls, read_token=self._newest_token, dial=self._dial
        )

    async def _read_token(self) -> str:
        token = await self._newest_token()
        self._renewal.used(token)
        return token

    async def _newest_token(self) -> str:
        return await asyncio.to_thread(self._credentials.token)

    async def is_renewal_due(self) -> bool:
        """Return whether the session's token expires soon and there is a newer one."""
        if not self._renewal.is_due():
            return False
        try:
            newest = await self._newest_token()
        except OSError:
            newest = ""
        return self._renewal.is_newer(newest)

    def explain(self, text: str) -> str:
        """Return why a try failed, for a refused token with what that may mean."""
        if self.is_refusal_final or not is_refusal(text):
            return text
        name = self._credentials.token_name or f"the token in {self._credentials.token_file}"
        return (
            f"the server refused {name} ({text}): the sign-in"
            f" service is away or slow, or it refused the token, which its log tells with the"
            f" reason"
        )


def is_refusal(text: str) -> bool:
    """Return whether this error of the server refuses credentials."""
    return "authorization violation" in text.lower()
