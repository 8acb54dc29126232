"""What the tests of the client over real connections share."""

import shutil
from pathlib import Path

import pytest

from tests.component.kube_client.web import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The one that the server is signed by."""
    return _made(tmp_path_factory.mktemp("tls") / "ours", "ours")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another one."""
    return _made(tmp_path_factory.mktemp("tls") / "stranger", "stranger")


def _made(folder: Path, name: str) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, so there are no certificates to test TLS with")
    return Authority(folder, name)
