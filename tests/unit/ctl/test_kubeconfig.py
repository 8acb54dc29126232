"""Which kubeconfigs are read without the library that knows all ways to authenticate."""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.ctl.kubeconfig import context_namespace, kubeconfig_path, plain_config

FOLDER = Path("/home/me/.kube")


def kubeconfig(user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://api", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }


def test_a_token_or_certificate_files_need_no_library() -> None:
    token = plain_config(kubeconfig({"token": "t"}), folder=FOLDER)
    assert token is not None
    assert (token.url, token.token, token.verify) == ("https://api", "Bearer t", True)
    files = {"client-certificate": "me.crt", "client-key": "/keys/me.key"}
    config = plain_config(kubeconfig(files, **{"certificate-authority": "ca.crt"}), folder=FOLDER)
    assert config is not None
    assert config.ca_file == "/home/me/.kube/ca.crt"
    assert config.cert_file == "/home/me/.kube/me.crt"
    assert config.key_file == "/keys/me.key"


@pytest.mark.parametrize(
    "content",
    [
        kubeconfig({"exec": {"command": "login"}}),
        kubeconfig({"client-certificate-data": "eA=="}),
        kubeconfig({"tokenFile": "/token"}),
        kubeconfig({"token": "t"}, **{"certificate-authority-data": "eA=="}),
        kubeconfig({"token": "t"}, server=""),
        {**kubeconfig({"token": "t"}), "users": [{"name": "u", "user": ["t"]}]},
        {**kubeconfig({"token": "t"}), "clusters": [{"name": "k", "cluster": "https://api"}]},
        {**kubeconfig({"token": "t"}), "current-context": "other"},
        {**kubeconfig({"token": "t"}), "users": None},
        {},
        "text",
        None,
    ],
)
def test_any_other_is_left_to_the_library(content: Any) -> None:
    assert plain_config(content, folder=FOLDER) is None


def test_the_file_is_the_one_that_kubectl_reads() -> None:
    home = {"HOME": "/home/me"}
    assert kubeconfig_path("", home) == FOLDER / "config"
    assert kubeconfig_path("", {**home, "KUBECONFIG": "/a"}) == Path("/a")
    assert kubeconfig_path("/b", {**home, "KUBECONFIG": "/a"}) == Path("/b")
    assert kubeconfig_path("", {**home, "KUBECONFIG": "/a:/b"}) is None
    assert kubeconfig_path("", {**home, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None


def test_the_namespace_is_that_of_the_current_context(tmp_path: Path) -> None:
    content = kubeconfig({"exec": {"command": "login"}})
    content["contexts"][0]["context"]["namespace"] = "gpus"
    file, other = tmp_path / "config", tmp_path / "other"
    file.write_text(json.dumps(content))
    other.write_text("current-context: elsewhere\n")
    environ = {"HOME": "/none", "KUBECONFIG": f"{tmp_path / 'absent'}:{file}:{other}"}
    assert context_namespace(str(file), {}) == context_namespace("", environ) == "gpus"
    environ["KUBECONFIG"] = f"{other}:{file}"
    assert context_namespace("", environ) == "", "the first file that names a context counts"


@pytest.mark.parametrize("text", ["{", "text", "current-context: c", "contexts: [1]", ""])
def test_what_cannot_be_read_names_no_namespace(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    assert context_namespace(str(file), {}) == ""
    assert context_namespace(str(tmp_path / "absent"), {}) == ""
