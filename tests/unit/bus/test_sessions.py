"""The names of sessions are read as they are written, and different holders have different ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.bus.sessions import Session, parse_session_name, session_name
from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Identity, Writer

DRIVER = Identity(writer=Writer.DRIVER, node="gpu-1.example")
CTL = Identity(cluster="east", writer=Writer.CTL)
UID = "8f3c2a52-61d3-4f0c-9f6e-0d6b1f6a7e11"


def test_names() -> None:
    assert session_name(DRIVER, UID) == f"default/gpu-1.example/driver#{UID}"
    assert session_name(Identity(writer=Writer.SCHEDULER), UID) == f"default/-/scheduler#{UID}"
    assert session_name(DRIVER) == "default/gpu-1.example/driver#"
    account = "system:serviceaccount:tools:bot"
    assert session_name(CTL, account) == f"east/-/ctl#{account}"
    assert session_name(CTL, "oidc:a.b@c.example") == "east/-/ctl#oidc:a.b@c.example"
    assert session_name(CTL, "A b#/\n") == "east/-/ctl#A%20b%23%2F%0A"


IDENTITIES = [
    *(Identity(writer=writer, node="a.b") for writer in COMPONENTS),
    *(Identity(cluster="other", writer=writer) for writer in CLUSTER_WRITERS),
]


@pytest.mark.parametrize("identity", IDENTITIES, ids=str)
def test_a_name_is_read_as_it_was_written(identity: Identity) -> None:
    assert parse_session_name(session_name(identity, UID)) == Session(identity, UID)
    assert parse_session_name(session_name(identity)) == Session(identity, "")


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_holders_have_names_of_their_own(holder: str, other: str) -> None:
    name = session_name(CTL, holder)
    assert name.isascii()
    assert name.isprintable()
    assert len(name) < 200
    assert str(parse_session_name(name)) == name
    assert (name == session_name(CTL, other)) == (holder == other)


def test_a_long_holder_is_shortened_to_a_name_of_its_own() -> None:
    long = "o" * 1000
    name = session_name(CTL, long)
    assert len(name) == len("east/-/ctl#") + 96 + 1 + 32
    assert name not in {session_name(CTL, f"{long}o"), session_name(CTL, name.partition("#")[2])}
    assert str(parse_session_name(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#",
        "UA5O4YQDXB3PJC7A6MMAHT7NRFQHRF6CMVUVYSE3D3YC64WJE4LVXA6L",
        "default/gpu-1.example/driver",
        "default/-/driver#x",
        "default/gpu-1/scheduler#x",
        "default//scheduler#x",
        "default/gpu-1/nobody#x",
        "default/*/driver#x",
        "*/gpu-1/driver#x",
        "default/gpu_1/driver#x",
        "default/gpu-1/driver/more#x",
    ],
)
def test_other_names_are_no_sessions(text: str) -> None:
    assert parse_session_name(text) is None
