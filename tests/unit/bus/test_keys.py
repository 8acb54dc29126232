"""The text form of keys: as nkeys writes it, and no other text."""

from typing import Any

import nkeys
import pytest

from libs.bus.keys import (
    KeyKind,
    NotAKey,
    decode_public,
    decode_seed,
    encode_public,
    encode_seed,
)

RAW = bytes(range(32))
LETTERS = {
    KeyKind.ACCOUNT: "A",
    KeyKind.SERVER: "N",
    KeyKind.USER: "U",
    KeyKind.CURVE: "X",
}


@pytest.mark.parametrize("kind", KeyKind)
def test_keys_and_seeds_are_read_as_they_are_written(kind: KeyKind) -> None:
    public, seed = encode_public(kind, RAW), encode_seed(kind, RAW)
    assert (public[0], seed[:2]) == (LETTERS[kind], f"S{LETTERS[kind]}")
    assert decode_public(kind, public) == decode_seed(kind, seed) == RAW


def test_seeds_and_keys_are_those_of_nkeys() -> None:
    seed = nkeys.encode_seed(RAW, nkeys.PREFIX_BYTE_USER)
    public: Any = nkeys.from_seed(seed).public_key
    assert encode_seed(KeyKind.USER, RAW) == seed.decode()
    raw = decode_public(KeyKind.USER, public.decode())
    assert encode_public(KeyKind.USER, raw) == public.decode()


def test_a_curve_key_is_one_that_nats_server_showed() -> None:
    shown = "XD2SJTR65YA4PBIZAQ6D5HBGC357HBMMRGQRIDKE7T7FURPJ3EYCY5JI"
    assert encode_public(KeyKind.CURVE, decode_public(KeyKind.CURVE, shown)) == shown


GOOD = encode_public(KeyKind.USER, RAW)
OTHERS = {
    "nothing": "",
    "another kind": encode_public(KeyKind.ACCOUNT, RAW),
    "a seed": encode_seed(KeyKind.USER, RAW),
    "a part": GOOD[:-1],
    "more": f"{GOOD}A",
    "small letters": GOOD.lower(),
    "not base32": f"{GOOD[:-1]}1",
    "not ASCII": f"{GOOD[:-1]}ä",
    "one other character": f"{GOOD[:-1]}{'A' if GOOD[-1] != 'A' else 'B'}",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_another_text_is_no_key(text: str) -> None:
    with pytest.raises(NotAKey):
        decode_public(KeyKind.USER, text)


def test_an_error_does_not_show_a_seed() -> None:
    seed = encode_seed(KeyKind.CURVE, RAW)
    for text in (seed, seed[:-1], seed.lower()):
        with pytest.raises(NotAKey) as raised:
            decode_seed(KeyKind.ACCOUNT, text)
        assert text not in str(raised.value)
