"""Settings of agents, and the sources of the Node's uid."""

import base64
from pathlib import Path

import msgspec
import pytest

from libs.bus.agent import AgentSettings
from libs.bus.connect import NatsSettings
from libs.runtime import settings
from libs.runtime.fatal import Fatal


def token(path: Path, claims: object) -> str:
    middle = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=").decode()
    path.write_text(f"head.{middle}.signature")
    return str(path)


def test_a_setting_names_the_node() -> None:
    told = AgentSettings(node="a", node_uid="uid-1", token_file="/nowhere")
    assert told.resolve_node_uid() == "uid-1"


def test_the_token_names_the_node(tmp_path: Path) -> None:
    claims = {"aud": ["sluice"], "kubernetes.io": {"node": {"name": "a", "uid": "uid-2"}}}
    told = AgentSettings(node="a", token_file=token(tmp_path / "token", claims))
    assert told.resolve_node_uid() == "uid-2"


@pytest.mark.parametrize("claims", [{}, {"kubernetes.io": {"pod": {"uid": "x"}}}, [], "x"])
def test_a_token_without_the_node_is_fatal(tmp_path: Path, claims: object) -> None:
    told = AgentSettings(node="a", token_file=token(tmp_path / "token", claims))
    with pytest.raises(Fatal, match="set SLUICE_NODE_UID"):
        told.resolve_node_uid()


def test_a_malformed_token_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("none")
    with pytest.raises(Fatal, match="set SLUICE_NODE_UID"):
        AgentSettings(node="a", token_file=str(tmp_path / "token")).resolve_node_uid()


def test_a_missing_token_file_is_fatal(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="No such file"):
        AgentSettings(node="a", token_file=str(tmp_path / "token")).resolve_node_uid()


def test_an_unknown_uid_is_fatal() -> None:
    with pytest.raises(Fatal, match="the Node's uid is unknown"):
        AgentSettings(node="a").resolve_node_uid()


def test_an_agent_connects_as_its_node_with_its_token() -> None:
    told = AgentSettings(node="a", token_file="/token")
    assert (told.nats_settings.node, told.nats_settings.token_file) == ("a", "/token")
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
    told = settings.load(AgentSettings, environ=environ)
    assert (told.node, told.state_dir, told.nats.url) == ("a", Path("/state"), "nats://nats:4222")
