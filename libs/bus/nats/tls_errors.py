"""What a failed TLS handshake with a NATS server means, in words."""

import ssl
from collections.abc import Sequence

from libs.contracts.words import first_few

NAMES_SHOWN = 10

_NOT_YET_VALID, _EXPIRED, _WRONG_NAME, _WRONG_ADDRESS = 9, 10, 62, 64
_UNKNOWN_CA = frozenset({2, 7, 18, 19, 20, 21})
"""OpenSSL's numbers: no issuer, a wrong signature, self-signed, or not verifiable."""

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")


def is_wrong_name(error: ssl.SSLError) -> bool:
    """Return whether the certificate is valid, but for another server."""
    return _code(error) in (_WRONG_NAME, _WRONG_ADDRESS)


def describe_tls_error(error: ssl.SSLError, *, asked: str = "", names: Sequence[str] = ()) -> str:
    """Return what is wrong and what to do; `names` are those in the server's certificate."""
    # An error that Python itself raises has no reason.
    code, reason = _code(error), getattr(error, "reason", None) or str(error)
    if code == _EXPIRED:
        return (
            "the server's certificate, or the one of its CA, has expired: renew it and reload"
            " the server; if it is valid, check this machine's clock"
        )
    if code == _NOT_YET_VALID:
        return (
            "the server's certificate, or the one of its CA, is not yet valid: check the clocks"
            " of this machine and of the issuer"
        )
    if code in (_WRONG_NAME, _WRONG_ADDRESS):
        return (
            f"the server's certificate is not for {asked}, but for {_list(names)}: use one of its"
            f" names as address, or add {asked} to the certificate"
        )
    if code in _UNKNOWN_CA:
        return (
            "the server's certificate is not signed by a CA of the configured CA file: configure"
            " the file of the CA that signed it, or check that this is the right server"
        )
    if reason in _NOT_TLS:
        return (
            "the server does not start with TLS, and nothing was sent to it: set handshake_first"
            " in the tls block of its configuration, or check the address"
        )
    if "ALERT" in reason:
        return (
            f"the server ended the TLS handshake ({reason}): check that the client certificate"
            f" is configured, if the server requires one, and that its CA is known there"
        )
    return f"the TLS handshake failed: {reason}"


def _code(error: ssl.SSLError) -> int:
    return error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0


def _list(names: Sequence[str]) -> str:
    return first_few(names, NAMES_SHOWN) if names else "other names"
