"""Find the API server and our credentials, from kubeconfig files or the pod's service account.

`libs.kube.config.sources` reads the configuration; this module makes a transport with TLS of it. No
request is sent.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from libs.kube.config.credentials import RefreshedCredentials
from libs.kube.config.sources import (
    SERVICE_ACCOUNT,
    ClusterConfig,
    ConfigSource,
    InClusterSource,
    KubeconfigSource,
)
from libs.kube.errors import Misconfigured
from libs.kube.http import HttpTransport, RequestAuth
from libs.runtime.clock import Clock

log = logging.getLogger("sluice.kube")


async def open_transport(
    *,
    clock: Clock,
    kubeconfig: Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> HttpTransport:
    """Open a transport to the configured cluster; `Misconfigured` says in one line why there is
    none.

    The first of: `kubeconfig`, $KUBECONFIG, the service account of this pod, ~/.kube/config.
    """
    source = await asyncio.to_thread(
        choose_source,
        kubeconfig=kubeconfig,
        context=context,
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
    context: str | None,
    environ: Mapping[str, str],
    service_account: Path,
) -> ConfigSource:
    """Return the source to read; `Misconfigured` names what was tried and what to do."""
    if kubeconfig is not None:
        return KubeconfigSource([kubeconfig], context=context)
    if listed := environ.get("KUBECONFIG"):
        paths = [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
        return KubeconfigSource(paths, context=context)
    if InClusterSource.is_available(environ) and context is None:
        return InClusterSource(environ, folder=service_account)
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if home.exists():
        return KubeconfigSource([home], context=context)
    raise Misconfigured(
        "looking for a cluster",
        f"no kubeconfig was given, $KUBECONFIG is not set, this is no pod ($KUBERNETES_SERVICE_HOST"
        f" is not set), and there is no {home}; give a kubeconfig, or run in a cluster",
    )


class AuthLoader:
    """Turns configurations into request credentials. Equal files give the same TLS context, so that
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
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
    except ssl.SSLError as error:
        raise Misconfigured(f"the CA file {config.ca_file}", "it holds no certificate") from error
    except OSError as error:  # removed since it was read
        why = f"it cannot be read: {error.strerror}"
        raise Misconfigured(f"the CA file {config.ca_file}", why) from error
    if config.cert_file:
        try:
            context.load_cert_chain(config.cert_file, config.key_file or None)
        except (ssl.SSLError, OSError) as error:
            what = f"the client certificate {config.cert_file} with the key {config.key_file}"
            why = f"they do not fit: {getattr(error, 'reason', None) or error}"
            raise Misconfigured(what, why) from error
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
