"""What kubernetes_asyncio makes of kubeconfig files, or of the pod that we run in.

It is imported here and nowhere else, and only when it is needed: it brings all its models along
(40 MiB, half a second), and offers no smaller part. Where it says something else than a person
needs to hear, that becomes one line here.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from libs.kube.errors import Misconfigured
from libs.runtime.fatal import describe_error

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and the cluster's CA."""

READ_TIMEOUT = 60.0
"""Seconds for a plugin, or whoever else gives credentials: people may have to log in."""

_HOST = "KUBERNETES_SERVICE_HOST"
_PORT = "KUBERNETES_SERVICE_PORT"


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the configuration."""

    url: str
    token: str = ""
    """With the word before it: `Bearer …`."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""
    proxy: str = ""

    def __repr__(self) -> str:
        return f"Found({self.url})"


class ConfigSource(Protocol):
    """Somewhere that a configuration is read from; `str()` of it is for a person."""

    async def read(self, *, anew: bool) -> ClusterConfig:
        """`anew`: forget what was read before. `Misconfigured` says what is wrong."""
        ...


class InClusterSource:
    """The pod that we run in; its token is a file that is written anew in time."""

    def __init__(self, environ: Mapping[str, str], *, folder: Path) -> None:
        self._environ = environ
        self._folder = folder

    def __str__(self) -> str:
        return f"the service account of this pod ({self._folder})"

    @staticmethod
    def is_available(environ: Mapping[str, str]) -> bool:
        """Whether we run in a pod at all."""
        return bool(environ.get(_HOST) and environ.get(_PORT))

    async def read(self, *, anew: bool) -> ClusterConfig:  # noqa: ARG002  (there is nothing to forget)
        """The token is always read from its file."""
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
            why = f"{error}; the pod needs a service account, and its token mounted"
            raise Misconfigured(str(self), why) from error
        return _found(configuration)


class KubeconfigSource:
    """Kubeconfig files, read as one; earlier ones win."""

    def __init__(self, paths: Sequence[Path], *, context: str | None) -> None:
        self._paths = paths
        self._context = context
        self._loader: Any = None
        self._plugin = ""

    def __str__(self) -> str:
        return f"kubeconfig {os.pathsep.join(map(str, self._paths))}"

    async def read(self, *, anew: bool) -> ClusterConfig:
        """Plugins and single sign-on are asked when what they gave expires, or `anew`."""
        # The library reads files on its loop, and waits for a plugin for ever: so it gets a loop
        # in a thread, and a limit there.
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
        except Exception as error:  # the library lets out whatever it meets
            raise Misconfigured(str(self), self._words(error)) from error
        found = _found(configuration)
        if self._plugin and not (found.token or found.cert_file):
            why = f"the plugin {self._plugin!r} gave neither a token nor a certificate"
            raise Misconfigured(str(self), why)
        return found

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
        merged["current-context"] = _current(merger.config_files.values())
        for user in merged["users"]:
            user.value = _with_its_plugin(user.value, Path(user.path))
        self._check(merged)

        def keep(_: object) -> None:
            """A single sign-on that is renewed goes back into the file that it came from."""
            merger.save_changes()

        return kube_config.KubeConfigLoader(
            config_dict=merger.config,
            config_base_path=None,
            active_context=self._context,
            config_persister=keep,
        )

    def _check(self, merged: Mapping[str, Any]) -> None:
        """What the library would say in words of its own; and which plugin will be asked."""
        contexts = _by_name(merged, "contexts", "context")
        named = self._context or merged.get("current-context") or ""
        there = ", ".join(contexts) or "none"
        if not named:
            raise Misconfigured(str(self), f"no context is current; name one of: {there}")
        if named not in contexts:
            raise Misconfigured(str(self), f"it has no context {named!r}, but: {there}")
        context = contexts[named]
        cluster = _by_name(merged, "clusters", "cluster").get(context.get("cluster") or "")
        if not (cluster and cluster.get("server")):
            why = f"the context {named!r} leads to no cluster with a server"
            raise Misconfigured(str(self), why)
        user = _by_name(merged, "users", "user").get(context.get("user") or "") or {}
        plugin: Mapping[str, Any] = user.get("exec") or {}
        self._plugin = str(plugin.get("command") or "")

    def _words(self, error: Exception) -> str:
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
        if isinstance(error, TimeoutError):
            who = f"the plugin {self._plugin!r}" if self._plugin else "who gives credentials"
            return f"{who} did not answer within {READ_TIMEOUT:g} s"
        if isinstance(error, OSError):
            return f"{error.filename or 'a file'} cannot be read: {error.strerror or error}"
        text = " ".join(str(error).split())
        if text.startswith("File does not exist"):
            return f"{text.partition(': ')[2]} is not there; mend its path"
        if isinstance(error, ConfigException):
            told = f"the plugin {self._plugin!r} failed: "
            return text.replace("exec: ", told, 1) if self._plugin else text
        if isinstance(error, AttributeError | KeyError | TypeError | AssertionError):
            return "it is YAML, but not a kubeconfig"
        return describe_error(error)


class _Loop(asyncio.SelectorEventLoop):
    """A loop that ends the programs that were started on it: the library leaves a hung one."""

    def __init__(self) -> None:
        super().__init__()
        self._programs: list[asyncio.SubprocessTransport] = []

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """As always, and remember it."""
        transport, protocol = await super().subprocess_exec(*args, **kwargs)
        self._programs.append(transport)
        return transport, protocol

    async def end_programs(self) -> None:
        """Kill those that still run, and wait until they have ended."""
        for program in self._programs:
            program.close()
            while program.get_returncode() is None:  # noqa: ASYNC110  (it has no event)
                await asyncio.sleep(0.01)


def _current(files: Iterable[Mapping[str, Any]]) -> str:
    """The first that is named, as kubectl has it; the library takes the last."""
    return next((named for file in files if (named := file.get("current-context"))), "")


def _with_its_plugin(entry: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """A plugin given by a relative path lies beside its file, not where we were started."""
    user: Mapping[str, Any] = entry.get("user") or {}
    plugin: Mapping[str, Any] = user.get("exec") or {}
    command = str(plugin.get("command") or "")
    if os.sep not in command:
        return entry
    # A copy: what we make of it must not be saved into the file.
    found = {**plugin, "command": str(file.absolute().parent / command)}
    return {**entry, "user": {**user, "exec": found}}


def _by_name(merged: Mapping[str, Any], plural: str, kind: str) -> dict[str, Mapping[str, Any]]:
    return {each.value["name"]: each.value.get(kind) or {} for each in merged[plural]}


def _configuration() -> Any:
    from kubernetes_asyncio.client import Configuration

    return Configuration()


def _found(configuration: Any) -> ClusterConfig:
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
