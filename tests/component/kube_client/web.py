"""A web server on the loopback with a handler of the test, with or without TLS."""

import ssl
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """Serve while entered; return the address."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


class CertificateAuthority:
    """A certificate authority created with openssl."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self._folder = folder
        self.ca = folder / "ca.crt"
        self._key = folder / "ca.key"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca,
            "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def issue(self, name: str, *, names: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """Return the files of a new certificate and its key."""
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}",
            "-CA", self.ca, "-CAkey", self._key, "-keyout", key, "-out", certificate,
            "-addext", "basicConstraints=critical,CA:FALSE",
        )  # fmt: skip
        return certificate, key

    def server(self, *, names: str = "IP:127.0.0.1", clients: bool = False) -> ssl.SSLContext:
        """Return the context of a server, which may require certificates of `clients`."""
        certificate, key = self.issue("server", names=names)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
        context.load_cert_chain(certificate, key)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
