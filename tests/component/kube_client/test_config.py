"""Where a way to the cluster comes from, how credentials are renewed, and clear words otherwise."""

import base64
import logging
import stat
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from libs.kube import config
from libs.kube.client import Kube
from libs.kube.connect import REFRESH_PERIOD, open_transport
from libs.kube.errors import Misconfigured, Unauthorized
from libs.kube.http import HttpTransport
from libs.runtime.clock import SystemClock
from tests.component.kube_client.web import CertificateAuthority, serve
from tests.support import eventually


class OffsetClock(SystemClock):
    """The machine's, and whatever is added."""

    def __init__(self) -> None:
        self.added = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.added


class TokenServer:
    """An API server that lets one token in, and says who came."""

    def __init__(self) -> None:
        self.token = "good"
        self.seen: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        shown = request.headers.get("authorization", "")
        self.seen.append(shown)
        if shown != f"Bearer {self.token}":
            return web.json_response({"message": "Unauthorized", "code": 401}, status=401)
        return web.json_response({"path": request.path})


def kubeconfig(path: Path, *, server: str = "http://127.0.0.1:1", **given: Any) -> Path:
    """A file with one context, `here`."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": given.get("current", "here"),
        "clusters": [{"name": "c", "cluster": {"server": server, **given.get("cluster", {})}}],
        "users": [{"name": "u", "user": given.get("user", {"token": "good"})}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(content))
    return path


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """A program that gives credentials."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "args": []}
    }


def credential(**status: str) -> str:
    words = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return msgspec.json.encode({**words, "status": status}).decode()


async def why(environ: Mapping[str, str] | None = None, **how: Any) -> str:
    with pytest.raises(Misconfigured) as wrong:
        await open_transport(clock=SystemClock(), environ=environ or {"HOME": "/nowhere"}, **how)
    text = str(wrong.value)
    assert "\n" not in text
    return text


async def came_in(way: HttpTransport, clock: SystemClock | None = None) -> bool:
    kube = Kube(way, manager="test", clock=clock or SystemClock())
    try:
        return await kube.request("GET", "/version") == b'{"path": "/version"}'
    except Unauthorized:
        return False


# Where it comes from.


async def test_no_configuration(tmp_path: Path) -> None:
    assert await why({"HOME": str(tmp_path)}) == (
        "looking for a cluster: no kubeconfig was given, $KUBECONFIG is not set, this is no pod "
        f"($KUBERNETES_SERVICE_HOST is not set), and there is no {tmp_path}/.kube/config; "
        "give a kubeconfig, or run in a cluster"
    )


async def test_the_first_source_wins(tmp_path: Path) -> None:
    def environ(**more: str) -> dict[str, str]:
        return {"HOME": str(tmp_path), **more}

    async def url(environ: Mapping[str, str], **how: Any) -> str:
        async with await open_transport(clock=SystemClock(), environ=environ, **how) as way:
            return way.url

    kubeconfig(tmp_path / ".kube" / "config", server="http://home")
    listed = kubeconfig(tmp_path / "listed", server="http://listed/")
    given = kubeconfig(tmp_path / "given", server="http://given")
    pod = environ(KUBERNETES_SERVICE_HOST="10.0.0.1", KUBERNETES_SERVICE_PORT="443")
    account = tmp_path / "account"
    account.mkdir()
    assert await url(environ()) == "http://home"
    assert str(account / "token") not in await why(environ(KUBECONFIG=str(tmp_path / "none")))
    assert await url(environ(KUBECONFIG=f"{tmp_path / 'none'}:{listed}")) == "http://listed"
    assert await url(environ(KUBECONFIG=str(listed)), kubeconfig=given) == "http://given"
    assert await url(pod, context="here", service_account=account) == "http://home"
    assert "Service token file does not exist" in await why(pod, service_account=account)


async def test_several_files_are_merged(tmp_path: Path) -> None:
    gate = TokenServer()
    async with serve(gate) as url:
        first = kubeconfig(tmp_path / "first", user={"token": "bad"}, cluster={"server": url})
        second = tmp_path / "second"
        context = {"name": "there", "context": {"cluster": "c", "user": "v"}}
        second.write_bytes(
            msgspec.json.encode(
                {"contexts": [context], "users": [{"name": "v", "user": {"token": "good"}}]}
            )
        )
        environ = {"KUBECONFIG": f"{first}:{second}"}
        async with await open_transport(
            clock=SystemClock(), environ=environ, context="there"
        ) as way:
            assert await came_in(way)
        async with await open_transport(clock=SystemClock(), environ=environ) as way:
            assert not await came_in(way)


async def test_the_first_file_sets_the_current_context(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", user={}, cluster={"server": "http://127.0.0.1:1"})
    other = {"name": "other", "cluster": {"server": "http://127.0.0.1:2"}}
    second = tmp_path / "second"
    second.write_bytes(
        msgspec.json.encode(
            {
                "current-context": "other",
                "clusters": [other],
                "contexts": [{"name": "other", "context": {"cluster": "other"}}],
            }
        )
    )
    for files, port in (((first, second), 1), ((second, first), 2)):
        environ = {"KUBECONFIG": ":".join(map(str, files))}
        async with await open_transport(clock=SystemClock(), environ=environ) as way:
            assert way.url == f"http://127.0.0.1:{port}"


async def test_a_relative_plugin_path_is_relative_to_its_file(tmp_path: Path) -> None:
    user = plugin(tmp_path, f"echo '{credential(token='good')}'")
    user["exec"]["command"] = "./plugin"
    async with serve(TokenServer()) as url:
        path = kubeconfig(tmp_path / "config", user=user, cluster={"server": url})
        content = path.read_bytes()
        async with await open_transport(clock=SystemClock(), environ={}, kubeconfig=path) as way:
            assert await came_in(way)
    assert path.read_bytes() == content


# What is wrong with it.


async def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert await why(kubeconfig=path) == (
        f"kubeconfig {path}: there is no such file; give the path of one"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b: c", "it is no YAML: line 1, column 5: mapping values are not allowed here"),
        ("- a\n- b", "it is YAML, but not a kubeconfig"),
        ("", "it is YAML, but not a kubeconfig"),
        ("users: 7", "it is YAML, but not a kubeconfig"),
        ("{}", "no context is current; name one of: none"),
    ],
)
async def test_a_file_that_is_not_a_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert await why(kubeconfig=path) == f"kubeconfig {path}: {said}"


async def test_a_missing_context(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")
    said = f"kubeconfig {path}: it has no context 'prod', but: here"
    assert await why(kubeconfig=path, context="prod") == said
    kubeconfig(path, current="")
    said = f"kubeconfig {path}: no context is current; name one of: here"
    assert await why(kubeconfig=path) == said
    kubeconfig(path, server="")
    said = f"kubeconfig {path}: the context 'here' leads to no cluster with a server"
    assert await why(kubeconfig=path) == said


async def test_invalid_tls_files(tmp_path: Path, authority: CertificateAuthority) -> None:
    path, ca = tmp_path / "config", tmp_path / "ca.crt"
    server = "https://127.0.0.1:1"
    cluster = {"certificate-authority": "ca.crt"}  # beside the file that names it
    kubeconfig(path, server=server, cluster=cluster)
    said = f"kubeconfig {path}: {ca} is not there; mend its path"
    assert await why(kubeconfig=path) == said
    ca.write_text("nothing")
    assert await why(kubeconfig=path) == f"the CA file {ca}: it holds no certificate"
    certificate, _ = authority.issue("one")
    _, key = authority.issue("two")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    kubeconfig(path, server=server, user=user)
    assert await why(kubeconfig=path) == (
        f"the client certificate {certificate} with the key {key}: "
        f"they do not fit: KEY_VALUES_MISMATCH"
    )


async def test_a_missing_token_file(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", user={"tokenFile": "token"})
    said = f"kubeconfig {path}: {tmp_path}/token cannot be read: No such file or directory"
    assert await why(kubeconfig=path) == said


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo log in first >&2; exit 3", "failed: process returned 3. log in first"),
        ("echo no JSON", "failed: failed to decode process output: Expecting value"),
        (f"echo '{credential()}'", "gave neither a token nor a certificate"),
        ("echo '{}'", "failed: malformed response. missing key 'apiVersion'"),
    ],
)
async def test_a_failing_plugin(tmp_path: Path, script: str, said: str) -> None:
    user = plugin(tmp_path, script)
    path = kubeconfig(tmp_path / "config", user=user)
    name = user["exec"]["command"]
    assert (await why(kubeconfig=path)).startswith(f"kubeconfig {path}: the plugin '{name}' {said}")


async def test_a_missing_plugin(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}
    path = kubeconfig(tmp_path / "config", user=user)
    assert await why(kubeconfig=path) == (
        f"kubeconfig {path}: the plugin 'no-such-plugin' cannot be run "
        f"(no such file or directory); install it on the PATH"
    )


async def test_a_hanging_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "READ_TIMEOUT", 0.2)
    user = plugin(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    path = kubeconfig(tmp_path / "config", user=user)
    name = user["exec"]["command"]
    said = f"kubeconfig {path}: the plugin '{name}' did not answer within 0.2 s"
    assert await why(kubeconfig=path) == said
    pid = int((tmp_path / "pid").read_text())
    await eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists())


# Who we are.


async def test_tokens_passwords_and_certificates(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    gate = TokenServer()
    inline = base64.b64encode(authority.ca.read_bytes()).decode()
    certificate, key = authority.issue("person")
    users: list[dict[str, Any]] = [
        {"token": "good"},
        {"username": "a", "password": "b"},
        {"client-certificate": str(certificate), "client-key": str(key)},
    ]
    async with serve(gate, tls=authority.server(clients=True)) as url:
        for user in users:
            everybody = {"client-certificate": str(certificate), "client-key": str(key), **user}
            cluster = {"certificate-authority-data": inline}
            path = kubeconfig(tmp_path / "config", server=url, user=everybody, cluster=cluster)
            async with await open_transport(clock=SystemClock(), kubeconfig=path) as way:
                assert await came_in(way) == (user == users[0])
    assert gate.seen == ["Bearer good", "Basic YTpi", ""]


async def test_verification_can_be_switched_off(
    tmp_path: Path, stranger: CertificateAuthority
) -> None:
    async with serve(TokenServer(), tls=stranger.server(names="DNS:other")) as url:
        cluster = {"insecure-skip-tls-verify": True}
        path = kubeconfig(tmp_path / "config", server=url, cluster=cluster)
        async with await open_transport(clock=SystemClock(), kubeconfig=path) as way:
            assert await came_in(way)


async def test_a_pod_rereads_its_token_each_minute(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    gate, clock = TokenServer(), OffsetClock()
    (tmp_path / "ca.crt").write_bytes(authority.ca.read_bytes())
    token = tmp_path / "token"
    token.write_text("good\n")
    async with serve(gate, tls=authority.server()) as url:
        host, _, port = url.removeprefix("https://").partition(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        async with await open_transport(
            clock=clock, environ=environ, service_account=tmp_path
        ) as way:
            assert way.url == url
            assert await came_in(way, clock)
            token.write_text("better\n")
            assert await came_in(way, clock)
            clock.added = REFRESH_PERIOD
            assert await came_in(way, clock)  # the reading goes on beside
            gate.token = "better"
            assert await came_in(way, clock)
            assert gate.seen[0] == "Bearer good"
            assert gate.seen[-1] == "Bearer better"


async def test_a_rejected_token_is_reread_once_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = TokenServer()
    async with serve(gate) as url:
        path = kubeconfig(tmp_path / "config", server=url, user={"token": "old"})
        async with await open_transport(clock=SystemClock(), kubeconfig=path) as way:
            with caplog.at_level(logging.WARNING, "sluice.kube"):
                assert not await came_in(way)
                assert not await came_in(way)
            assert gate.seen == ["Bearer old"] * 2
            assert [record.getMessage() for record in caplog.records] == [
                "the API server refused our credentials; reading them again"
            ]
            kubeconfig(path, server=url, user={"token": "good"})
            way_after = await open_transport(clock=SystemClock(), kubeconfig=path)
            assert await came_in(way_after)
            gate.token = "fresh"
            kubeconfig(path, server=url, user={"token": "fresh"})
            assert await came_in(way_after)
            assert gate.seen[-2:] == ["Bearer good", "Bearer fresh"]
            await way_after.close()


async def test_a_plugin_runs_again_when_its_token_is_rejected(tmp_path: Path) -> None:
    gate = TokenServer()
    (tmp_path / "current").write_text(
        credential(token="good", expirationTimestamp="2999-01-01T00:00:00Z")
    )
    runs = tmp_path / "runs"
    user = plugin(tmp_path, f"echo x >> {runs}; cat {tmp_path}/current")
    clock = OffsetClock()
    async with serve(gate) as url:
        path = kubeconfig(tmp_path / "config", server=url, user=user)
        async with await open_transport(clock=clock, kubeconfig=path) as way:
            assert await came_in(way, clock)
            clock.added = REFRESH_PERIOD
            assert await came_in(way, clock)
            assert await came_in(way, clock)
            assert len(runs.read_text().split()) == 1  # what it gave lasts for long
            gate.token = "next"
            (tmp_path / "current").write_text(credential(token="next"))
            assert await came_in(way, clock)
            assert len(runs.read_text().split()) == 2


async def test_unreadable_credentials_keep_the_old_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate, clock = TokenServer(), OffsetClock()
    token = tmp_path / "token"
    token.write_text("good")
    async with serve(gate) as url:
        path = kubeconfig(tmp_path / "config", server=url, user={"tokenFile": "token"})
        async with await open_transport(clock=clock, kubeconfig=path) as way:
            token.unlink()
            gate.token = "other"
            with caplog.at_level(logging.WARNING, "sluice.kube"):
                assert not await came_in(way, clock)
            gate.token = "good"
            assert await came_in(way, clock)
    assert [record.getMessage() for record in caplog.records] == [
        "the API server refused our credentials; reading them again",
        (
            f"cannot read our credentials again, the old ones stay: kubeconfig {path}: "
            f"{token} cannot be read: No such file or directory"
        ),
    ]
