"""How an identity proves itself to the server. No secret of it is ever printed."""

import ssl
from pathlib import Path
from typing import Any

import msgspec
import nkeys

from libs.bus.port import BusMisconfigured

_nkeys: Any = nkeys  # it has no types


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How an identity proves itself: by one of these, or, where the server lets it, by none."""

    nkey_seed: str = ""
    nkey_seed_file: str = ""
    token_file: str = ""
    """Read again at each connect: a projected token is renewed in place."""
    creds_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def __repr__(self) -> str:
        given = [field for field in self.__struct_fields__ if getattr(self, field)]
        return f"Credentials({', '.join(given)})"

    def options(self) -> dict[str, Any]:
        """As nats-py wants them. Raises `Misconfigured` for a file that cannot be read."""
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
        """A small file in memory, read on the loop because nats-py asks for it there.

        An error of the system is tried again at the next reconnect; another would end them.
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


def _read(what: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BusMisconfigured(
            f"cannot read the {what} file {path}: {why}; mount it, or name another"
        ) from None


def _seed(where: str, seed: str) -> str:
    try:
        _nkeys.from_seed(seed.encode())
    except Exception:  # noqa: BLE001  (nkeys raises whatever it meets; none of it may be shown)
        raise BusMisconfigured(
            f"{where} holds no nkey seed: it is one line that begins with SU"
        ) from None
    return seed


def _check_creds(path: str, text: str) -> None:
    # nats-py looks for the JWT until the end of the world if there is none.
    for part in ("BEGIN NATS USER JWT", "BEGIN USER NKEY SEED"):
        if part not in text:
            raise BusMisconfigured(f"the credentials file {path} has no part that says {part!r}")
