"""What one connection presents to a NATS server: its files are read again for each try."""

import asyncio
from typing import Any

from libs.bus.addresses import parse_addresses
from libs.bus.credentials import Credentials
from libs.bus.nats.client import PatchedClient
from libs.bus.token_renewal import TokenRenewal
from libs.runtime.env import Env


class SignIn:
    """The credentials of a connection; raises `BusMisconfigured` if they are unsafe with `url`."""

    def __init__(self, *, url: str, credentials: Credentials, env: Env) -> None:
        addresses = parse_addresses(url, credentials)
        self._urls = addresses.urls
        self._load_tls = credentials.tls if addresses.tls else None
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
        return PatchedClient(load_tls=self._load_tls, read_token=read_token)

    async def _read_token(self) -> str:
        token = await asyncio.to_thread(self._credentials.token)
        self._renewal.used(token)
        return token

    async def is_renewal_due(self) -> bool:
        """Return whether to sign in again, before the session ends with its token."""
        if not self._renewal.is_due():
            return False
        try:
            newest = await asyncio.to_thread(self._credentials.token)
        except OSError:
            newest = ""
        return self._renewal.is_newer(newest)

    def explain_refusal(self, text: str) -> str:
        """Return the server's answer with what it may mean for a token."""
        if self.is_refusal_final:
            return text
        return (
            f"the server refused the token in {self._credentials.token_file} ({text}): the sign-in"
            f" service is away or slow, or it refused the token, which its log tells with the"
            f" reason"
        )
