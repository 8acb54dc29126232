"""The configuration: its sources, its errors, and the renewal of credentials."""

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
    """The system clock plus `added` seconds."""

    def __init__(self) -> None:
        self.added = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.added


class TokenServer:
    """An API server that accepts one token and records every token."""

    def __init__(self) -> None:
        self.token = "good"
        self.tokens: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers.get("authorization", "")
        self.tokens.append(token)
        if token != f"Bearer {self.token}":
            return web.json_response({"message": "Unauthorized", "code": 401}, status=401)
        return web.json_response({"path": request.path})


def kubeconfig(path: Path, *, server: str = "http://127.0.0.1:1", **given: Any) -> Path:
    """Write a file with the context `here`."""
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
    """Write a credential plugin, and return the user that names it."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "args": []}
    }


def credential(**status: str) -> str:
    fields = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return msgspec.json.encode({**fields, "status": status}).decode()


async def refusal_of(environ: Mapping[str, str] | None = None, **options: Any) -> str:
    with pytest.raises(Misconfigured) as refused:
        await open_transport(
            clock=SystemClock(), environ=environ or {"HOME": "/nowhere"}, **options
        )
    text = str(refused.value)
    assert "\n" not in text
    return text


async def is_admitted(transport: HttpTransport, clock: SystemClock | None = None) -> bool:
    kube = Kube(transport, manager="test", clock=clock or SystemClock())
    try:
        return await kube.request("GET", "/version") == b'{"path": "/version"}'
    except Unauthorized:
        return False


# Sources.


async def test_no_configuration(tmp_path: Path) -> None:
    assert await refusal_of({"HOME": str(tmp_path)}) == (
        "looking for a cluster: no kubeconfig was given, $KUBECONFIG is not set, this is no pod "
        f"($KUBERNETES_SERVICE_HOST is not set), and there is no {tmp_path}/.kube/config; "
        "give a kubeconfig, or run in a cluster"
    )


async def test_the_first_source_wins(tmp_path: Path) -> None:
    def environ(**more: str) -> dict[str, str]:
        return {"HOME": str(tmp_path), **more}

    async def url(environ: Mapping[str, str], **options: Any) -> str:
        async with await open_transport(
            clock=SystemClock(), environ=environ, **options
        ) as transport:
            return transport.url

    kubeconfig(tmp_path / ".kube" / "config", server="http://home")
    listed = kubeconfig(tmp_path / "listed", server="http://listed/")
    given = kubeconfig(tmp_path / "given", server="http://given")
    pod = environ(KUBERNETES_SERVICE_HOST="10.0.0.1", KUBERNETES_SERVICE_PORT="443")
    account = tmp_path / "account"
    account.mkdir()
    assert await url(environ()) == "http://home"
    assert str(account / "token") not in await refusal_of(
        environ(KUBECONFIG=str(tmp_path / "none"))
    )
    assert await url(environ(KUBECONFIG=f"{tmp_path / 'none'}:{listed}")) == "http://listed"
    assert await url(environ(KUBECONFIG=":")) == "http://home"
    assert await url(environ(KUBECONFIG=str(listed)), kubeconfig=given) == "http://given"
    assert "Service token file does not exist" in await refusal_of(pod, service_account=account)


async def test_several_files_are_merged(tmp_path: Path) -> None:
    second = tmp_path / "second"
    context = {"name": "there", "context": {"cluster": "c", "user": "v"}}
    users = [{"name": "v", "user": {"token": "good"}}]
    second.write_bytes(msgspec.json.encode({"contexts": [context], "users": users}))
    async with serve(TokenServer()) as url:
        for current, admitted in (("there", True), ("here", False)):
            first = kubeconfig(
                tmp_path / "first", user={"token": "bad"}, server=url, current=current
            )
            environ = {"KUBECONFIG": f"{first}:{second}"}
            async with await open_transport(clock=SystemClock(), environ=environ) as transport:
                assert await is_admitted(transport) == admitted


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
        async with await open_transport(clock=SystemClock(), environ=environ) as transport:
            assert transport.url == f"http://127.0.0.1:{port}"


async def test_a_relative_plugin_path_is_relative_to_its_file(tmp_path: Path) -> None:
    user = plugin(tmp_path, f"echo '{credential(token='good')}'")
    user["exec"]["command"] = "./plugin"
    async with serve(TokenServer()) as url:
        path = kubeconfig(tmp_path / "config", user=user, cluster={"server": url})
        content = path.read_bytes()
        async with await open_transport(
            clock=SystemClock(), environ={}, kubeconfig=path
        ) as transport:
            assert await is_admitted(transport)
    assert path.read_bytes() == content


# Errors.


async def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert await refusal_of(kubeconfig=path) == (
        f"kubeconfig {path}: there is no such file; give the path of one"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c", "it is no YAML: line 1, column 5: mapping values are not allowed here"),
        ("- a\n- b", "it is YAML, but not a kubeconfig"),
        ("", "it is YAML, but not a kubeconfig"),
        ("users: 7", "it is YAML, but not a kubeconfig"),
        ("{}", "it has no context, and so names no cluster"),
        ("a: \x01", "it is no YAML: at position 3 is a character that YAML forbids"),
    ],
)
async def test_a_file_that_is_not_a_kubeconfig(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert await refusal_of(kubeconfig=path) == f"kubeconfig {path}: {message}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"current": "prod"}, "it has no context 'prod', but: here"),
        ({"current": ""}, "no context is current; name one of: here"),
        ({"server": ""}, "the context 'here' leads to no cluster with a server"),
    ],
)
async def test_a_missing_context(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    path = kubeconfig(tmp_path / "config", **given)
    assert await refusal_of(kubeconfig=path) == f"kubeconfig {path}: {message}"


async def test_invalid_tls_files(tmp_path: Path, authority: CertificateAuthority) -> None:
    path, ca = tmp_path / "config", tmp_path / "ca.crt"
    server = "https://127.0.0.1:1"
    cluster = {"certificate-authority": "ca.crt"}  # relative to the kubeconfig
    kubeconfig(path, server=server, cluster=cluster)
    message = f"kubeconfig {path}: {ca} does not exist; correct its path"
    assert await refusal_of(kubeconfig=path) == message
    ca.write_text("nothing")
    assert await refusal_of(kubeconfig=path) == f"the CA file {ca}: it holds no certificate"
    certificate, _ = authority.issue("one")
    _, key = authority.issue("two")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    kubeconfig(path, server=server, user=user)
    assert await refusal_of(kubeconfig=path) == (
        f"the client certificate {certificate} with the key {key}: "
        f"they do not fit: key values mismatch"
    )


async def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe")
    assert await refusal_of(kubeconfig=path) == (
        f"kubeconfig {path}: it, or a file that it names, is not text in UTF-8"
    )


async def test_a_certificate_in_the_kubeconfig_is_not_called_by_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "config"
    data = base64.b64encode(b"nothing").decode()
    server = "https://127.0.0.1:1"
    kubeconfig(path, server=server, cluster={"certificate-authority-data": data})
    assert await refusal_of(kubeconfig=path) == (
        "certificate-authority-data of the kubeconfig: it holds no certificate"
    )
    kubeconfig(path, server=server, user={"client-certificate-data": data, "client-key-data": data})
    assert await refusal_of(kubeconfig=path) == (
        "the client certificate client-certificate-data of the kubeconfig with the key"
        " client-key-data of the kubeconfig: they are not a certificate and its own key in PEM"
        " format"
    )


async def test_a_context_that_names_an_unknown_user_is_not_anonymous(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config")
    path.write_text(path.read_text().replace('"user":"u"', '"user":"other"'))
    assert await refusal_of(kubeconfig=path) == (
        f"kubeconfig {path}: the context 'here' names the user 'other', who is not in it; users: u"
    )


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ("nonsense", "begins neither with https:// nor with http://"),
        ("localhost:6443", "begins neither with"),
        ("ftp://api", "begins neither with"),
        ("//api", "begins neither with"),
        ("https://", "names no host"),
        ("https://a b", "names no host"),
        ("https://a\\b", "names no host"),
        ("https://api:0", "names no host"),
        ("https://[::1", "no port from 1 to 65535"),
        ("https://api:99999", "no port from 1 to 65535"),
        ("https://api:https", "no port from 1 to 65535"),
        (f"https://{'a' * 300}", "names no host"),
        ("https://me:secret@api", "has a name or a password in it"),
    ],
)
async def test_an_address_that_is_none(tmp_path: Path, server: str, problem: str) -> None:
    path = kubeconfig(tmp_path / "config", server=server)
    told = await refusal_of(kubeconfig=path)
    assert told.startswith(f"kubeconfig {path}: the address of the server ")
    assert problem in told
    assert "secret" not in told
    through = kubeconfig(tmp_path / "proxied", cluster={"proxy-url": "socks5://me:secret@proxy"})
    told = await refusal_of(kubeconfig=through)
    assert "the address of the proxy is 'proxy', which begins neither" in told


@pytest.mark.parametrize(
    "server", ["https://[::1]:6443", "http://127.0.0.1", "https://ü.example/k8s/c-1", "http://a_b."]
)
async def test_an_address_that_is_one(tmp_path: Path, server: str) -> None:
    path = kubeconfig(
        tmp_path / "config", server=server, cluster={"proxy-url": "http://me:secret@proxy:3128"}
    )
    async with await open_transport(clock=SystemClock(), kubeconfig=path) as transport:
        assert transport.url == server


async def test_a_missing_token_file(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", user={"tokenFile": "token"})
    message = f"kubeconfig {path}: {tmp_path}/token cannot be read: No such file or directory"
    assert await refusal_of(kubeconfig=path) == message


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo log in first >&2; exit 3", "failed: process returned 3. log in first"),
        ("echo no JSON", "failed: failed to decode process output: Expecting value"),
        (f"echo '{credential()}'", "returned neither a token nor a certificate"),
        ("echo '{}'", "failed: malformed response. missing key 'apiVersion'"),
    ],
)
async def test_a_failing_plugin(tmp_path: Path, script: str, message: str) -> None:
    user = plugin(tmp_path, script)
    path = kubeconfig(tmp_path / "config", user=user)
    name = user["exec"]["command"]
    assert (await refusal_of(kubeconfig=path)).startswith(
        f"kubeconfig {path}: the plugin '{name}' {message}"
    )


async def test_a_missing_plugin(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}
    path = kubeconfig(tmp_path / "config", user=user)
    assert await refusal_of(kubeconfig=path) == (
        f"kubeconfig {path}: the plugin 'no-such-plugin' cannot be run "
        f"(no such file or directory); install it on the PATH"
    )


async def test_a_hanging_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "READ_TIMEOUT", 0.2)
    user = plugin(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    path = kubeconfig(tmp_path / "config", user=user)
    name = user["exec"]["command"]
    message = f"kubeconfig {path}: the plugin '{name}' did not answer within 0.2 s"
    assert await refusal_of(kubeconfig=path) == message
    pid = int((tmp_path / "pid").read_text())
    await eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists())


# Credentials.


async def test_tokens_passwords_and_certificates(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    api = TokenServer()
    inline = base64.b64encode(authority.ca.read_bytes()).decode()
    certificate, key = authority.issue("person")
    users: list[dict[str, Any]] = [
        {"token": "good"},
        {"username": "a", "password": "b"},
        {"client-certificate": str(certificate), "client-key": str(key)},
    ]
    async with serve(api, tls=authority.server(clients=True)) as url:
        for user in users:
            credentials = {"client-certificate": str(certificate), "client-key": str(key), **user}
            cluster = {"certificate-authority-data": inline}
            path = kubeconfig(tmp_path / "config", server=url, user=credentials, cluster=cluster)
            async with await open_transport(clock=SystemClock(), kubeconfig=path) as transport:
                assert await is_admitted(transport) == (user == users[0])
    assert api.tokens == ["Bearer good", "Basic YTpi", ""]


async def test_verification_can_be_switched_off(
    tmp_path: Path, stranger: CertificateAuthority
) -> None:
    async with serve(TokenServer(), tls=stranger.server(names="DNS:other")) as url:
        cluster = {"insecure-skip-tls-verify": True}
        path = kubeconfig(tmp_path / "config", server=url, cluster=cluster)
        async with await open_transport(clock=SystemClock(), kubeconfig=path) as transport:
            assert await is_admitted(transport)


async def test_a_pod_rereads_its_token_each_minute(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    api, clock = TokenServer(), OffsetClock()
    (tmp_path / "ca.crt").write_bytes(authority.ca.read_bytes())
    token = tmp_path / "token"
    token.write_text("good\n")
    async with serve(api, tls=authority.server()) as url:
        host, _, port = url.removeprefix("https://").partition(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        async with await open_transport(
            clock=clock, environ=environ, service_account=tmp_path
        ) as transport:
            assert transport.url == url
            assert await is_admitted(transport, clock)
            token.write_text("better\n")
            assert await is_admitted(transport, clock)
            clock.added = REFRESH_PERIOD
            assert await is_admitted(transport, clock)  # the read runs in the background
            api.token = "better"
            assert await is_admitted(transport, clock)
            assert api.tokens[0] == "Bearer good"
            assert api.tokens[-1] == "Bearer better"


async def test_a_rejected_token_is_reread_once_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = TokenServer()
    async with serve(api) as url:
        path = kubeconfig(tmp_path / "config", server=url, user={"token": "old"})
        async with await open_transport(clock=SystemClock(), kubeconfig=path) as transport:
            with caplog.at_level(logging.WARNING, "sluice.kube"):
                assert not await is_admitted(transport)
                assert not await is_admitted(transport)
            assert api.tokens == ["Bearer old"] * 2
            assert [record.getMessage() for record in caplog.records] == [
                "the API server refused our credentials; reading them again"
            ]
            kubeconfig(path, server=url, user={"token": "good"})
            renewed = await open_transport(clock=SystemClock(), kubeconfig=path)
            assert await is_admitted(renewed)
            api.token = "fresh"
            kubeconfig(path, server=url, user={"token": "fresh"})
            assert await is_admitted(renewed)
            assert api.tokens[-2:] == ["Bearer good", "Bearer fresh"]
            await renewed.close()


async def test_a_plugin_runs_again_when_its_token_is_rejected(tmp_path: Path) -> None:
    api = TokenServer()
    (tmp_path / "current").write_text(
        credential(token="good", expirationTimestamp="2999-01-01T00:00:00Z")
    )
    runs = tmp_path / "runs"
    user = plugin(tmp_path, f"echo x >> {runs}; cat {tmp_path}/current")
    clock = OffsetClock()
    async with serve(api) as url:
        path = kubeconfig(tmp_path / "config", server=url, user=user)
        async with await open_transport(clock=clock, kubeconfig=path) as transport:
            assert await is_admitted(transport, clock)
            clock.added = REFRESH_PERIOD
            assert await is_admitted(transport, clock)
            assert await is_admitted(transport, clock)
            assert len(runs.read_text().split()) == 1  # its credential is not expired
            api.token = "next"
            (tmp_path / "current").write_text(credential(token="next"))
            assert await is_admitted(transport, clock)
            assert len(runs.read_text().split()) == 2


async def test_unreadable_credentials_keep_the_old_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api, clock = TokenServer(), OffsetClock()
    token = tmp_path / "token"
    token.write_text("good")
    async with serve(api) as url:
        path = kubeconfig(tmp_path / "config", server=url, user={"tokenFile": "token"})
        async with await open_transport(clock=clock, kubeconfig=path) as transport:
            token.unlink()
            api.token = "other"
            with caplog.at_level(logging.WARNING, "sluice.kube"):
                assert not await is_admitted(transport, clock)
            api.token = "good"
            assert await is_admitted(transport, clock)
    assert [record.getMessage() for record in caplog.records] == [
        "the API server refused our credentials; reading them again",
        (
            f"cannot read our credentials again, the old ones stay: kubeconfig {path}: "
            f"{token} cannot be read: No such file or directory"
        ),
    ]
