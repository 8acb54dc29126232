"""Credentials for NATS. No secret is ever printed."""

import ssl
from pathlib import Path
from typing import Any

import msgspec
import nkeys

from libs.bus.port import BusMisconfigured

_nkeys: Any = nkeys  # nkeys has no type annotations

MAX_TOKEN = 16 * 1024
"""Bytes; tokens of Kubernetes have one or two thousand."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Sign-in itself has a seed, everybody else a token; a server of tests may want none."""

    nkey_seed_file: str = ""
    token_file: str = ""
    """Read at each connect, because a projected token is renewed in place."""
    token_name: str = ""
    """What messages call the token; empty: by its file."""
    ca_file: str = ""
    """Read at each connect, as the other files of TLS."""
    cert_file: str = ""
    key_file: str = ""

    def __repr__(self) -> str:
        set_fields = [field for field in self.__struct_fields__ if getattr(self, field)]
        return f"Credentials({', '.join(set_fields)})"

    @property
    def signs_in(self) -> bool:
        """Whether the server checks a token, which it asks the sign-in service about."""
        return bool(self.token_file) and not self.nkey_seed_file

    @property
    def has_tls_files(self) -> bool:
        return bool(self.ca_file or self.cert_file or self.key_file)

    def options(self) -> dict[str, Any]:
        """Return connect options of nats-py without those that change while it runs.

        Raise `BusMisconfigured` for an unreadable file.
        """
        options: dict[str, Any] = {}
        if self.nkey_seed_file:
            seed = _read("nkey seed", self.nkey_seed_file)
            options["nkeys_seed_str"] = _seed(self.nkey_seed_file, seed)
        elif self.token_file:
            _read("token", self.token_file)
        return options

    def token(self) -> str:
        """Read the token file; raise OSError if it holds none now."""
        with Path(self.token_file).open("rb") as file:
            content = file.read(MAX_TOKEN + 1)
        token = content.strip().decode(errors="replace")
        if not token or len(content) > MAX_TOKEN:
            problem = "is longer than a token" if token else "is empty"
            raise OSError(f"the token file {self.token_file} {problem}")
        return token

    def tls(self) -> ssl.SSLContext:
        """Read the TLS files; raise `BusMisconfigured` with the file and the reason."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except ssl.SSLError:
            raise BusMisconfigured(
                f"the CA file {self.ca_file} for NATS holds no certificate in PEM format:"
                f" configure the file of the CA that signed the server's certificate"
            ) from None
        except OSError as error:
            raise BusMisconfigured(
                f"cannot read the CA file {self.ca_file} for NATS: {error.strerror}; mount it or"
                f" configure another path"
            ) from None
        if self.cert_file:
            self._add_certificate(context)
        return context

    def _add_certificate(self, context: ssl.SSLContext) -> None:
        pair = f"the client certificate {self.cert_file} with the key {self.key_file or 'in it'}"
        try:
            context.load_cert_chain(self.cert_file, self.key_file or None)
        except ssl.SSLError as error:
            raise BusMisconfigured(
                f"cannot use {pair} for NATS: {error.reason or error}; configure a certificate and"
                f" its own key in PEM format"
            ) from None
        except OSError as error:
            raise BusMisconfigured(
                f"cannot read {pair} for NATS: {error.strerror}; mount them or configure other"
                f" paths"
            ) from None


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
