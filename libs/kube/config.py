"""Read a cluster configuration with kubernetes_asyncio, from kubeconfig files or the pod.

kubernetes_asyncio is imported only here and only when needed: it loads all its models (40 MiB, half
a second). Its errors become one-line `Misconfigured` errors.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import msgspec

from libs.kube.errors import Misconfigured
from libs.runtime.fatal import describe_error

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has its token and the cluster's CA."""

READ_TIMEOUT = 60.0
"""Seconds for a credential plugin; a person may have to log in."""

_HOST_VARIABLE = "KUBERNETES_SERVICE_HOST"
_PORT_VARIABLE = "KUBERNETES_SERVICE_PORT"
_HOST = re.compile(rb"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")
"""A name, or an address without brackets."""
_INLINE = (
    "certificate-authority-data",
    "client-certificate-data",
    "client-key-data",
)


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    token: str = ""
    """With its scheme: `Bearer …`."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""
    proxy: str = ""
    inline: frozenset[str] = frozenset()
    """Fields of a kubeconfig that have the content of a file, of which `*_file` names a copy."""

    def __repr__(self) -> str:
        return f"ClusterConfig({self.url})"


def check_addresses(config: ClusterConfig, source: object) -> None:
    """Raise `Misconfigured` where no request can be sent to the server or through the proxy."""
    for field, address in (("server", config.url), ("proxy", config.proxy)):
        if field == "server" and "@" in address:
            why = "the address of the server has a name or a password in it; put them under `users`"
            raise Misconfigured(str(source), why)
        if address and (problem := _address_problem(address)):
            example = "https://api.example:6443" if field == "server" else "http://proxy:3128"
            raise Misconfigured(
                str(source), f"the address of the {field} {problem}; write one like {example}"
            )


def _address_problem(address: str) -> str:
    """Return what makes an address unusable."""
    shown = address.rpartition("@")[2][:80]  # of a proxy a password may be before it
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        named = bool(_HOST.fullmatch(host.encode("idna"))) and port != 0
    except ValueError:
        return f"is {shown!r}, which names no host, or no port from 1 to 65535"
    if parts.scheme not in ("http", "https"):
        return f"is {shown!r}, which begins neither with https:// nor with http://"
    return "" if named else f"is {shown!r}, which names no host"


class ConfigSource(Protocol):
    """A source of the configuration; `str()` describes it for people."""

    async def read(self, *, anew: bool) -> ClusterConfig:
        """Read the configuration, from scratch if `anew`; raise `Misconfigured` if it is wrong."""
        ...


class InClusterSource:
    """The service account of this pod; its token file is rewritten before it expires."""

    def __init__(self, environ: Mapping[str, str], *, folder: Path) -> None:
        self._environ = environ
        self._folder = folder

    def __str__(self) -> str:
        return f"the service account of this pod ({self._folder})"

    @staticmethod
    def is_available(environ: Mapping[str, str]) -> bool:
        """Return whether this process runs in a pod."""
        return bool(environ.get(_HOST_VARIABLE) and environ.get(_PORT_VARIABLE))

    async def read(self, *, anew: bool) -> ClusterConfig:  # noqa: ARG002  (nothing is cached)
        return await asyncio.to_thread(self._read)

    def _read(self) -> ClusterConfig:
        from kubernetes_asyncio.config import ConfigException
        from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

        configuration = _configuration()
        loader = InClusterConfigLoader(
            token_filename=str(self._folder / "token"),
            cert_filename=str(self._folder / "ca.crt"),
            environ=dict(self._environ),
        )
        try:
            loader.load_and_set(configuration)
        except (ConfigException, OSError, ValueError) as error:
            why = (
                f"{str(error).rstrip('.')}; the pod needs a service account, and its token mounted"
            )
            raise Misconfigured(str(self), why) from error
        return _cluster_config(configuration)


class KubeconfigSource:
    """Kubeconfig files merged into one; earlier files win."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._loader: Any = None
        self._plugin = ""
        self._inline = frozenset[str]()

    def __str__(self) -> str:
        return f"kubeconfig {os.pathsep.join(map(str, self._paths))}"

    async def read(self, *, anew: bool) -> ClusterConfig:
        """Read the files; run plugins and single sign-on when their credentials expire, or if
        `anew`.
        """
        # The library reads files on its loop and waits for plugins without limit: run it on a
        # loop of its own in a thread, with a timeout.
        return await asyncio.to_thread(self._read, anew=anew)

    def _read(self, *, anew: bool) -> ClusterConfig:
        configuration = _configuration()
        try:
            if anew or self._loader is None:
                self._loader = self._load()
            with asyncio.Runner(loop_factory=_Loop) as runner:
                runner.run(self._fill(configuration))
        except Misconfigured:
            raise
        except Exception as error:  # the library raises anything
            raise Misconfigured(str(self), self._describe(error)) from error
        config = msgspec.structs.replace(_cluster_config(configuration), inline=self._inline)
        check_addresses(config, self)
        if self._plugin and not (config.token or config.cert_file):
            why = f"the plugin {self._plugin!r} returned neither a token nor a certificate"
            raise Misconfigured(str(self), why)
        return config

    async def _fill(self, configuration: Any) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                await self._loader.load_and_set(configuration)
        finally:
            await cast(_Loop, asyncio.get_running_loop()).end_programs()

    def _load(self) -> Any:
        from kubernetes_asyncio.config import kube_config

        if not any(path.exists() for path in self._paths):
            raise Misconfigured(str(self), "there is no such file; give the path of one")
        merger: Any = kube_config.KubeConfigMerger(os.pathsep.join(map(str, self._paths)))
        merged = merger.config.value
        merged["current-context"] = _current_context(merger.config_files.values())
        for user in merged["users"]:
            user.value = _with_plugin_path(user.value, Path(user.path))
        self._check(merged)

        def save(_: object) -> None:
            """Save a renewed single sign-on in the file it came from."""
            merger.save_changes()

        return kube_config.KubeConfigLoader(
            config_dict=merger.config,
            config_base_path=None,
            config_persister=save,
        )

    def _check(self, merged: Mapping[str, Any]) -> None:
        """Check the context, cluster and user, for better errors than the library's; note the
        plugin.
        """
        contexts = _by_name(merged, "contexts", "context")
        named = merged.get("current-context") or ""
        available = ", ".join(contexts)
        if not contexts:
            raise Misconfigured(str(self), "it has no context, and so names no cluster")
        if not named:
            raise Misconfigured(str(self), f"no context is current; name one of: {available}")
        if named not in contexts:
            raise Misconfigured(str(self), f"it has no context {named!r}, but: {available}")
        context = contexts[named]
        cluster = _by_name(merged, "clusters", "cluster").get(context.get("cluster") or "")
        if not (cluster and cluster.get("server")):
            why = f"the context {named!r} leads to no cluster with a server"
            raise Misconfigured(str(self), why)
        users, name = _by_name(merged, "users", "user"), context.get("user") or ""
        if name and name not in users:
            known = ", ".join(users) or "none"
            why = f"the context {named!r} names the user {name!r}, who is not in it; users: {known}"
            raise Misconfigured(str(self), why)
        user = users.get(name) or {}
        self._inline = frozenset(
            field for field in _INLINE if cluster.get(field) or user.get(field)
        )
        plugin: Mapping[str, Any] = user.get("exec") or {}
        self._plugin = str(plugin.get("command") or "")

    def _describe(self, error: Exception) -> str:
        import yaml
        from kubernetes_asyncio.config import ConfigException

        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            return f"it is no YAML: line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
        if isinstance(error, FileNotFoundError | PermissionError) and (
            self._plugin and error.filename == self._plugin
        ):
            why = (error.strerror or "").lower()
            return f"the plugin {self._plugin!r} cannot be run ({why}); install it on the PATH"
        if isinstance(error, UnicodeDecodeError):
            return "it, or a file that it names, is not text in UTF-8"
        if isinstance(error, yaml.reader.ReaderError):
            return f"it is no YAML: at position {error.position} is a character that YAML forbids"
        if isinstance(error, TimeoutError):
            source = f"the plugin {self._plugin!r}" if self._plugin else "the credential source"
            return f"{source} did not answer within {READ_TIMEOUT:g} s"
        if isinstance(error, OSError):
            return f"{error.filename or 'a file'} cannot be read: {error.strerror or error}"
        text = " ".join(str(error).split())
        if text.startswith("File does not exist"):
            return f"{text.partition(': ')[2]} does not exist; correct its path"
        if isinstance(error, ConfigException):
            prefix = f"the plugin {self._plugin!r} failed: "
            return text.replace("exec: ", prefix, 1) if self._plugin else text
        if isinstance(error, AttributeError | KeyError | TypeError | AssertionError):
            return "it is YAML, but not a kubeconfig"
        return describe_error(error)


class _Loop(asyncio.SelectorEventLoop):
    """A loop that kills the programs started on it; the library leaves hung ones behind."""

    def __init__(self) -> None:
        super().__init__()
        self._programs: list[asyncio.SubprocessTransport] = []

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        transport, protocol = await super().subprocess_exec(*args, **kwargs)
        self._programs.append(transport)
        return transport, protocol

    async def end_programs(self) -> None:
        for program in self._programs:
            program.close()
            while program.get_returncode() is None:  # noqa: ASYNC110  (it has no event)
                await asyncio.sleep(0.01)


def _current_context(files: Iterable[Mapping[str, Any]]) -> str:
    """Return the first `current-context`, as kubectl does; the library takes the last."""
    return next((named for file in files if (named := file.get("current-context"))), "")


def _with_plugin_path(entry: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """Resolve a relative plugin path against its file, not the working directory."""
    user: Mapping[str, Any] = entry.get("user") or {}
    plugin: Mapping[str, Any] = user.get("exec") or {}
    command = str(plugin.get("command") or "")
    if os.sep not in command:
        return entry
    # A copy, because the original may be saved into the file.
    config = {**plugin, "command": str(file.absolute().parent / command)}
    return {**entry, "user": {**user, "exec": config}}


def _by_name(merged: Mapping[str, Any], plural: str, kind: str) -> dict[str, Mapping[str, Any]]:
    return {each.value["name"]: each.value.get(kind) or {} for each in merged[plural]}


def _configuration() -> Any:
    from kubernetes_asyncio.client import Configuration

    return Configuration()


def _cluster_config(configuration: Any) -> ClusterConfig:
    return ClusterConfig(
        url=configuration.host,
        token=" ".join(configuration.api_key.get("BearerToken", "").split()),
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        verify=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
    )
