"""Connect to the API server that the settings, the environment or the pod name.

`libs.kube.config` reads the configuration; this module opens a transport from it, with TLS and with
credentials that are read again periodically and when the server refuses them. No request is sent.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libs.kube.config import (
    SERVICE_ACCOUNT,
    ClusterConfig,
    ConfigSource,
    InClusterSource,
    KubeconfigSource,
)
from libs.kube.errors import Misconfigured
from libs.kube.http import HttpTransport, RequestAuth
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal

if TYPE_CHECKING:  # the command, which is no service, starts without them
    from libs.runtime.process import Process
    from libs.runtime.service import Service


async def connect(*, process: "Process[Any]", service: "Service", kubeconfig: str) -> HttpTransport:
    """Open the service's own transport; with an empty `kubeconfig`, from the environment or the
    pod.
    """
    try:
        transport = await open_transport(
            clock=process.env.clock, kubeconfig=Path(kubeconfig) if kubeconfig else None
        )
    except Misconfigured as error:
        raise Fatal(str(error)) from error
    return await service.enter("kube", transport)


log = logging.getLogger("sluice.kube")


async def open_transport(
    *,
    clock: Clock,
    kubeconfig: Path | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> HttpTransport:
    """Open a transport to the configured cluster; raise `Misconfigured` with one line if there is
    none.

    The first of: `kubeconfig`, $KUBECONFIG, the service account of this pod, ~/.kube/config.
    """
    source = await asyncio.to_thread(
        choose_source,
        kubeconfig=kubeconfig,
        environ=os.environ if environ is None else environ,
        service_account=service_account,
    )
    config = await source.read(anew=True)
    tls = AuthLoader()
    first = await asyncio.to_thread(tls.load, config)

    async def reload(anew: bool) -> RequestAuth:
        return await asyncio.to_thread(tls.load, await source.read(anew=anew))

    log.info("the API server is %s, by %s", config.url, source)
    return HttpTransport(
        config.url,
        credentials=RefreshedCredentials(first, reload, clock=clock),
        proxy=config.proxy,
        server_name=config.server_name,
    )


def choose_source(
    *,
    kubeconfig: Path | None,
    environ: Mapping[str, str],
    service_account: Path,
) -> ConfigSource:
    """Return the source to read; raise `Misconfigured` with the attempts and the remedy."""
    if kubeconfig is not None:
        return KubeconfigSource(kubeconfig)
    listed = environ.get("KUBECONFIG", "").split(os.pathsep)
    if paths := [Path(part).expanduser() for part in listed if part]:
        return KubeconfigSource(*paths)
    if InClusterSource.is_available(environ):
        return InClusterSource(environ, folder=service_account)
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if home.exists():
        return KubeconfigSource(home)
    raise Misconfigured(
        "looking for a cluster",
        f"no kubeconfig was given, $KUBECONFIG is not set, this is no pod ($KUBERNETES_SERVICE_HOST"
        f" is not set), and there is no {home}; give a kubeconfig, or run in a cluster",
    )


class AuthLoader:
    """Turn configurations into request credentials. Equal files give the same TLS context, so that
    connections stay open.
    """

    def __init__(self) -> None:
        self._loaded_from: object = None
        self._context: ssl.SSLContext | None = None

    def load(self, config: ClusterConfig) -> RequestAuth:
        """Load the credentials. Reads files, so not on the event loop."""
        headers = {"authorization": config.token} if config.token else {}
        if not config.url.startswith("https:"):
            return RequestAuth(headers=headers)
        files = (config.ca_file, config.cert_file, config.key_file)
        loaded_from = (config.verify, *(_content(file) for file in files))
        if loaded_from != self._loaded_from:
            self._context = _context(config)
            self._loaded_from = loaded_from
        return RequestAuth(headers=headers, tls=self._context)


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes() if file else b""
    except OSError as error:
        why = f"it cannot be read: {error.strerror}; mend its path in the configuration"
        raise Misconfigured(f"the TLS file {file}", why) from error


def _context(config: ClusterConfig) -> ssl.SSLContext:
    authority = _called(config, "certificate-authority-data", f"the CA file {config.ca_file}")
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
    except ssl.SSLError as error:
        raise Misconfigured(authority, "it holds no certificate") from error
    except OSError as error:  # removed since it was read
        why = f"it cannot be read: {error.strerror}"
        raise Misconfigured(authority, why) from error
    if config.cert_file:
        try:
            context.load_cert_chain(config.cert_file, config.key_file or None)
        except (ssl.SSLError, OSError) as error:
            cert = _called(config, "client-certificate-data", config.cert_file)
            key = _called(config, "client-key-data", config.key_file)
            pair = f"the client certificate {cert} with the key {key}"
            raise Misconfigured(pair, _pair_problem(error)) from error
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _pair_problem(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return f"they cannot be read: {error.strerror}"
    if error.reason:
        return f"they do not fit: {error.reason.lower().replace('_', ' ')}"
    return "they are not a certificate and its own key in PEM format"


def _called(config: ClusterConfig, field: str, file: str) -> str:
    """Return what a person calls a file: the field that it is a copy of, if it is one."""
    return f"{field} of the kubeconfig" if field in config.inline else file


REFRESH_PERIOD = 60.0
"""Seconds between readings: projected tokens are renewed in place."""

MIN_REFRESH_INTERVAL = 10.0
"""Seconds after a reading in which a refusal does not cause another."""

Reader = Callable[[bool], Awaitable[RequestAuth]]
"""Read the credentials; with True, also the configuration they come from. Raises `Misconfigured`,
within a bounded time.
"""


class RefreshedCredentials:
    """Credentials of a reader. A reading runs beside the requests, which use the old ones
    meanwhile.
    """

    def __init__(self, first: RequestAuth, reader: Reader, *, clock: Clock) -> None:
        self._auth = first
        self._reader = reader
        self._clock = clock
        self._read_at = clock.monotonic()
        self._reading: asyncio.Task[None] | None = None
        self._rejected: RequestAuth | None = None
        self._logged_problem = ""

    async def current(self) -> RequestAuth:
        if self._clock.monotonic() - self._read_at >= REFRESH_PERIOD:
            self._start_reading(anew=False)
        return self._auth

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:
        await self._reading_done()
        if rejected is self._auth and self._should_read_again(rejected):
            self._start_reading(anew=True)
            await self._reading_done()
        return None if self._auth is rejected else self._auth

    def _should_read_again(self, rejected: RequestAuth) -> bool:
        if self._rejected is not rejected:
            self._rejected = rejected
            log.warning("the API server refused our credentials; reading them again")
            return True
        return self._clock.monotonic() - self._read_at >= MIN_REFRESH_INTERVAL

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await self._reading_done()

    def _start_reading(self, *, anew: bool) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_again(anew), name="reading credentials")

    async def _reading_done(self) -> None:
        # Cancelling a waiter must not cancel the shared reading.
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def _read_again(self, anew: bool) -> None:
        try:
            auth = await self._reader(anew)
        except Misconfigured as error:
            self._log_problem(f"cannot read our credentials again, the old ones stay: {error}")
        else:
            self._log_problem("")
            if auth != self._auth:
                self._auth = auth
        finally:
            self._read_at = self._clock.monotonic()

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._logged_problem:
            log.warning(problem)
        self._logged_problem = problem
