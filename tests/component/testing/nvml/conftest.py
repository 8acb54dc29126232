"""Machines with GPUs, and a process that sees them through real pynvml."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from libs.testing.nvml import NotBuilt, StandIn, library, profiles
from libs.testing.nvml.profiles import Profile
from tests.component.testing.nvml.client import Client


@pytest.fixture(scope="session")
def folder() -> Path:
    """The folder of the library."""
    try:
        return library()
    except NotBuilt as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def shared_client(folder: Path) -> Generator[Client]:
    client = Client(folder)
    yield client
    client.end()


@pytest.fixture
def client(shared_client: Client) -> Generator[Client]:
    """A process with the library; it is closed at the end of the test."""
    yield shared_client
    shared_client.clean()


@pytest.fixture
def new_client(folder: Path) -> Generator[Callable[[], Client]]:
    """Start further processes, which end with the test whatever they do."""
    clients: list[Client] = []

    def start() -> Client:
        clients.append(Client(folder))
        return clients[-1]

    yield start
    for client in clients:
        client.end()


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[Profile], StandIn]:
    """Create the state of a machine."""
    return lambda profile: StandIn.create(tmp_path / "state", profile, seed=1)


@pytest.fixture
def h100(machine: Callable[[Profile], StandIn], client: Client) -> StandIn:
    """A machine with eight H100, which the client has open."""
    stand_in = machine(profiles.H100_80GB)
    client.open(stand_in)
    return stand_in
