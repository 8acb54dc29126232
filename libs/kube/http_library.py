"""aiohttp, imported without the certificates of the system.

As it is imported, it makes two TLS contexts and reads all these certificates into each, which takes
a tenth of the CPU time of `sluice status`. `libs.kube.http` uses neither.
"""

import ssl
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["aiohttp"]


@contextmanager
def _without_certificates() -> Generator[None]:
    read = ssl.SSLContext.set_default_verify_paths
    ssl.SSLContext.set_default_verify_paths = lambda self: None  # noqa: ARG005  (as the type says)
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = read


with _without_certificates():
    import aiohttp
