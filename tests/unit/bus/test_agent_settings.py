"""Settings of agents, and the sources of the Node's uid."""

import base64
from pathlib import Path

import msgspec
import pytest

from libs.bus.agent import AgentSettings
from libs.bus.connect import NatsSettings
from libs.runtime import settings
from libs.runtime.fatal import Fatal


def claims(content: object) -> str:
    """Return a token with these claims."""
    payload = base64.urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=").decode()
    return f"head.{payload}.signature"


def test_a_setting_names_the_node() -> None:
    loaded = AgentSettings(node="a", node_uid="uid-1", token_file="/nowhere")
    assert loaded.resolve_node_uid() == "uid-1"


def test_the_token_names_the_node(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(claims({"kubernetes.io": {"node": {"name": "a", "uid": "uid-2"}}}))
    loaded = AgentSettings(node="a", token_file=str(token))
    assert loaded.resolve_node_uid() == "uid-2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (claims({}), "set SLUICE_NODE_UID"),
        (claims({"kubernetes.io": {"pod": {"uid": "x"}}}), "set SLUICE_NODE_UID"),
        (claims([]), "set SLUICE_NODE_UID"),
        ("none", "set SLUICE_NODE_UID"),
        (None, "No such file"),
    ],
)
def test_a_token_without_the_node_is_fatal(
    tmp_path: Path, content: str | None, message: str
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    with pytest.raises(Fatal, match=message):
        AgentSettings(node="a", token_file=str(token)).resolve_node_uid()


def test_an_unknown_uid_is_fatal() -> None:
    with pytest.raises(Fatal, match="the Node's uid is unknown"):
        AgentSettings(node="a").resolve_node_uid()


def test_an_agent_connects_as_its_node_with_its_token() -> None:
    loaded = AgentSettings(node="a", token_file="/token")
    assert (loaded.nats_settings.node, loaded.nats_settings.token_file) == ("a", "/token")
    other = AgentSettings(node="a", token_file="/t", nats=NatsSettings(token_file="/mine"))
    assert other.nats_settings.token_file == "/mine"


def test_settings_are_read_from_the_environment() -> None:
    environ = {
        "SLUICE_NODE": "a",
        "SLUICE_POD_UID": "p",
        "SLUICE_NAMESPACE": "sluice",
        "SLUICE_HOST_ROOT": "/host",
        "SLUICE_TOKEN_FILE": "/var/run/secrets/sluice/token",
        "SLUICE_STATE_DIR": "/state",
        "SLUICE_NATS_URL": "nats://nats:4222",
    }
    loaded = settings.load(AgentSettings, environ=environ)
    assert (loaded.node, loaded.state_dir, loaded.nats.url) == (
        "a",
        Path("/state"),
        "nats://nats:4222",
    )
