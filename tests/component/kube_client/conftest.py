"""Certificate authorities for the tests over TLS."""

import shutil
from pathlib import Path

import pytest

from tests.component.kube_client.web import CertificateAuthority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """The authority that signs the server."""
    return _authority(tmp_path_factory.mktemp("tls") / "ours", "ours")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """An authority that the server does not use."""
    return _authority(tmp_path_factory.mktemp("tls") / "stranger", "stranger")


def _authority(folder: Path, name: str) -> CertificateAuthority:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, so there are no certificates to test TLS with")
    return CertificateAuthority(folder, name)
