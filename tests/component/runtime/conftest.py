"""Fixtures that run the example program and end it."""

import http.client
from collections.abc import Callable, Iterator

import pytest

from tests.component.runtime.example_process import ExampleProcess, Launch


@pytest.fixture
def launch() -> Iterator[Launch]:
    """A function that starts the example with arguments and environment."""
    programs: list[ExampleProcess] = []

    def start(*arguments: str, **environ: str) -> ExampleProcess:
        programs.append(ExampleProcess(*arguments, **environ))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


@pytest.fixture
def get() -> Callable[[int, str], tuple[int, str, str]]:
    """A function that returns status, content type and body of a page."""

    def request(port: int, path: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.headers["Content-Type"], response.read().decode()
        finally:
            connection.close()

    return request
