"""Credentials for NATS. No secret is ever printed."""

import ssl
from pathlib import Path
from typing import Any

import msgspec
import nkeys

from libs.bus.port import BusMisconfigured

_nkeys: Any = nkeys  # nkeys has no type annotations


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """At most one of seed, token and creds file is used; the server may accept none."""

    nkey_seed: str = ""
    nkey_seed_file: str = ""
    token_file: str = ""
    """Read at each connect, because a projected token is renewed in place."""
    creds_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def __repr__(self) -> str:
        set_fields = [field for field in self.__struct_fields__ if getattr(self, field)]
        return f"Credentials({', '.join(set_fields)})"

    def options(self) -> dict[str, Any]:
        """Return connect options of nats-py; raise `BusMisconfigured` for an unreadable file."""
        options: dict[str, Any] = {}
        if self.nkey_seed:
            options["nkeys_seed_str"] = _seed("the nkey seed", self.nkey_seed)
        elif self.nkey_seed_file:
            seed = _read("nkey seed", self.nkey_seed_file)
            options["nkeys_seed_str"] = _seed(self.nkey_seed_file, seed)
        elif self.creds_file:
            _check_creds(self.creds_file, _read("credentials", self.creds_file))
            options["user_credentials"] = self.creds_file
        elif self.token_file:
            _read("token", self.token_file)
            options["token"] = self._token
        if self.ca_file or self.cert_file:
            options["tls"] = self._tls()
        return options

    def _token(self) -> str:
        """Read the token file; nats-py calls this on the event loop.

        nats-py retries after an OSError; any other error would end its reconnects.
        """
        return Path(self.token_file).read_text().strip()

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(f for f in (self.ca_file, self.cert_file, self.key_file) if f)
            raise BusMisconfigured(f"TLS for NATS: cannot use {files}: {error}") from None
        return context


def _read(title: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BusMisconfigured(
            f"cannot read the {title} file {path}: {why}; mount it or configure another path"
        ) from None


def _seed(source: str, seed: str) -> str:
    try:
        _nkeys.from_seed(seed.encode())
    except Exception:  # noqa: BLE001  (nkeys raises many types, and their texts may hold the seed)
        raise BusMisconfigured(
            f"{source} does not contain an nkey seed, which is one line that starts with SU"
        ) from None
    return seed


def _check_creds(path: str, text: str) -> None:
    # nats-py loops forever over a file that has no JWT.
    for part in ("BEGIN NATS USER JWT", "BEGIN USER NKEY SEED"):
        if part not in text:
            raise BusMisconfigured(f"the credentials file {path} lacks the section {part!r}")
