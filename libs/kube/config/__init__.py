"""Where the API server is and who we are there: by kubeconfig files, or by the pod that we run in.

What is found (`libs.kube.config.sources`) becomes a transport, and TLS. Nothing is asked yet.
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
    """A way to the cluster that is configured; `Misconfigured` says in one line why there is none.

    The first of: `kubeconfig`, $KUBECONFIG, the pod that we run in, ~/.kube/config.
    """
    source = await asyncio.to_thread(
        choose_source,
        kubeconfig=kubeconfig,
        context=context,
        environ=os.environ if environ is None else environ,
        service_account=service_account,
    )
    found = await source.read(anew=True)
    tls = AuthLoader()
    first = await asyncio.to_thread(tls.load, found)

    async def again(anew: bool) -> RequestAuth:
        return await asyncio.to_thread(tls.load, await source.read(anew=anew))

    log.info("the API server is %s, by %s", found.url, source)
    return HttpTransport(
        found.url,
        credentials=RefreshedCredentials(first, again, clock=clock),
        proxy=found.proxy,
        server_name=found.server_name,
    )


def choose_source(
    *,
    kubeconfig: Path | None,
    context: str | None,
    environ: Mapping[str, str],
    service_account: Path,
) -> ConfigSource:
    """Where to read, or `Misconfigured`: what was tried, in order, and what to do."""
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
    """Makes of each reading what a request shows; the same files give the same TLS context, so
    that connections stay open.
    """

    def __init__(self) -> None:
        self._made_of: object = None
        self._context: ssl.SSLContext | None = None

    def load(self, found: ClusterConfig) -> RequestAuth:
        """Reads files, so not on the loop. `Misconfigured` names the one that is no good."""
        headers = {"authorization": found.token} if found.token else {}
        if not found.url.startswith("https:"):
            return RequestAuth(headers=headers)
        files = (found.ca_file, found.cert_file, found.key_file)
        made_of = (found.verify, *(_content(file) for file in files))
        if made_of != self._made_of:
            self._context = _context(found)
            self._made_of = made_of
        return RequestAuth(headers=headers, tls=self._context)


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes() if file else b""
    except OSError as error:
        why = f"it cannot be read: {error.strerror}; mend its path in the configuration"
        raise Misconfigured(f"the TLS file {file}", why) from error


def _context(found: ClusterConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=found.ca_file or None)
    except ssl.SSLError as error:
        raise Misconfigured(f"the CA file {found.ca_file}", "it holds no certificate") from error
    except OSError as error:  # it was there a moment ago
        why = f"it cannot be read: {error.strerror}"
        raise Misconfigured(f"the CA file {found.ca_file}", why) from error
    if found.cert_file:
        try:
            context.load_cert_chain(found.cert_file, found.key_file or None)
        except (ssl.SSLError, OSError) as error:
            what = f"the client certificate {found.cert_file} with the key {found.key_file}"
            why = f"they do not fit: {getattr(error, 'reason', None) or error}"
            raise Misconfigured(what, why) from error
    if not found.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
