"""What the tests of the client over real connections share."""

import shutil
from pathlib import Path

import pytest

from tests.component.kube_client.web import CertificateAuthority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """The one that the server is signed by."""
    return _made(tmp_path_factory.mktemp("tls") / "ours", "ours")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """Another one."""
    return _made(tmp_path_factory.mktemp("tls") / "stranger", "stranger")


def _made(folder: Path, name: str) -> CertificateAuthority:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, so there are no certificates to test TLS with")
    return CertificateAuthority(folder, name)
