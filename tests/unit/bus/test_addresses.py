"""Which addresses of NATS may be used with which credentials."""

import pytest

from libs.bus.addresses import Addresses, parse_addresses
from libs.bus.credentials import Credentials
from libs.bus.port import BusMisconfigured

NONE = Credentials()
TOKEN = Credentials(token_file="/token")
KEY_AND_TOKEN = Credentials(token_file="/token", nkey_seed_file="/seed")


@pytest.mark.parametrize(
    ("url", "credentials", "urls"),
    [
        ("nats://nats:4222", NONE, ("nats://nats:4222",)),
        ("nats:4222", NONE, ("nats://nats:4222",)),
        ("nats", NONE, ("nats://nats:4222",)),
        ("nats://nats:4222", KEY_AND_TOKEN, ("nats://nats:4222",)),
        ("nats://127.0.0.1:4222", TOKEN, ("nats://127.0.0.1:4222",)),
        ("nats://127.9.9.9", TOKEN, ("nats://127.9.9.9:4222",)),
        ("nats://[::1]:4222", TOKEN, ("nats://[::1]:4222",)),
        ("nats://localhost:4222", TOKEN, ("nats://localhost:4222",)),
        ("nats://a:1, nats://b:2", NONE, ("nats://a:1", "nats://b:2")),
    ],
)
def test_addresses_without_tls_are_completed_by_their_port(
    url: str, credentials: Credentials, urls: tuple[str, ...]
) -> None:
    assert parse_addresses(url, credentials) == Addresses(urls, tls=False)


@pytest.mark.parametrize("credentials", [NONE, TOKEN, Credentials(ca_file="/ca.pem")])
def test_addresses_with_tls_are_completed_by_their_port(credentials: Credentials) -> None:
    assert parse_addresses("TLS://a,tls://b:1", credentials) == Addresses(
        ("tls://a:4222", "tls://b:1"), tls=True
    )


@pytest.mark.parametrize(
    ("url", "credentials", "words"),
    [
        ("nats://nats:4222", TOKEN, "a token must not be sent to nats in plain text"),
        ("nats://127.0.0.1,nats://10.0.0.1", TOKEN, "must not be sent to 10.0.0.1"),
        ("nats://127.0.0.1.evil", TOKEN, "must not be sent to 127.0.0.1.evil"),
        ("nats://localhost.evil", TOKEN, "must not be sent to localhost.evil"),
        ("nats://[::ffff:10.0.0.1]", TOKEN, "must not be sent to ::ffff:10.0.0.1"),
        ("10.0.0.1:4222", TOKEN, "must not be sent to 10.0.0.1"),
        ("nats://a", Credentials(ca_file="/ca.pem"), "use tls://"),
        ("nats://127.0.0.1", Credentials(cert_file="/a", key_file="/b"), "use tls://"),
        ("tls://a,nats://b", NONE, "mixes"),
        ("ws://a", NONE, "is not the address of a NATS server"),
        ("wss://a", TOKEN, "is not the address of a NATS server"),
        ("tls://", NONE, "is not the address of a NATS server"),
        ("tls://a:x", NONE, "is not the address of a NATS server"),
        ("tls://a:99999", NONE, "is not the address of a NATS server"),
        ("tls://[a", NONE, "is not the address of a NATS server"),
        ("tls://a,", NONE, "is not the address of a NATS server"),
        ("nats://a b", NONE, "is not the address of a NATS server"),
        ("", NONE, "is not the address of a NATS server"),
    ],
)
def test_an_unsafe_or_wrong_address_is_refused_with_the_reason(
    url: str, credentials: Credentials, words: str
) -> None:
    with pytest.raises(BusMisconfigured) as caught:
        parse_addresses(url, credentials)
    assert words in str(caught.value)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(BusMisconfigured, match="contains a password") as caught:
        parse_addresses("tls://user:secret@a", NONE)
    assert "secret" not in str(caught.value)
