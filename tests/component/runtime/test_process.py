"""A process with two services: its pages and its ends."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.component.runtime.example_process import Launch

Get = Callable[[int, str], tuple[int, str, str]]


def test_a_ready_process_answers_its_probes(launch: Launch, get: Get):
    program = launch()
    port = program.ready()
    assert get(port, "/livez") == (200, "text/plain; charset=utf-8", "ok\n")
    assert get(port, "/readyz") == (200, "text/plain; charset=utf-8", "ok\n")
    assert get(port, "/other")[0] == 404
    assert get(port, "/metrics")[0] == 404, "readers of metrics cannot delay the probes"


def test_metrics_are_in_prometheus_format(launch: Launch, get: Get):
    program = launch()
    program.ready()
    status, kind, body = get(program.metrics_port, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = {family.name: family for family in text_string_to_metric_families(body)}
    assert [sample.value for sample in families["sluice_build_info"].samples] == [1]
    phases = {
        (sample.labels["service"], sample.labels["phase"])
        for sample in families["sluice_service_phase"].samples
        if sample.value == 1
    }
    assert phases == {("calm", "ready"), ("odd", "ready")}
    assert families["process_resident_memory_bytes"].samples[0].value > 0
    assert "_created" not in body


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_work_in_flight_finish_and_exits_0(launch: Launch, number: signal.Signals):
    program = launch()
    program.ready()
    program.signal(number)
    assert program.end() == 0
    assert [entry["service"] for entry in program.events(event="message answered")] == ["calm"]
    assert {entry["service"] for entry in program.events(event="bus closed")} == {"calm", "odd"}
    assert len(program.events(event="phase entered", phase="stopped")) == 2
    assert program.events(event="stop requested", service="odd")[0]["why"] == number.name
    assert not program.events(level="warning")


def test_a_signal_during_the_start_exits_0(launch: Launch, get: Get):
    program = launch(SLUICE_BEHAVIOUR="stuck")
    port = program.until("probe server started")["port"]
    program.until("phase entered", phase="ready", service="calm")
    assert get(port, "/livez")[0] == 200
    assert get(port, "/readyz")[::2] == (503, "odd: starting (opening cache)\n")
    program.signal()
    assert program.end() == 0


def test_a_draining_process_is_live_but_unready_and_exits_1_at_a_second_signal(
    launch: Launch, get: Get
):
    program = launch(SLUICE_BEHAVIOUR="hang", SLUICE_DRAIN="1h")
    port = program.ready()
    program.signal()
    program.until("phase entered", phase="stopped", service="calm")
    assert get(port, "/readyz")[::2] == (503, "calm: stopped\nodd: draining\n")
    assert get(port, "/livez")[0] == 200
    program.signal()
    assert program.end() == 1
    assert program.lines[-1] == "SIGTERM after SIGTERM: exiting with 1 at once, without draining"


def test_a_second_signal_works_while_the_loop_is_blocked(launch: Launch):
    program = launch(SLUICE_BEHAVIOUR="block", SLUICE_DRAIN="1h")
    program.ready()
    program.signal()
    program.until("loop blocked")
    program.signal(signal.SIGINT)
    assert program.end() == 1
    assert program.lines[-1] == "SIGINT after SIGTERM: exiting with 1 at once, without draining"


def test_the_drain_deadline_cancels_tasks_that_hang_and_exits_0(launch: Launch):
    program = launch(SLUICE_BEHAVIOUR="hang", SLUICE_DRAIN="50ms")
    program.ready()
    program.signal()
    assert program.end() == 0
    (warning,) = program.events(level="warning")
    assert warning["step"] == "finish work in flight"
    assert warning["error"].startswith("TimeoutError: not done after 0.0")
    assert warning["running"] == ["message"]
    assert len(program.events(event="bus closed")) == 2


def test_a_resource_that_fails_to_close_is_a_warning(launch: Launch):
    program = launch(SLUICE_BEHAVIOUR="lost")
    program.ready()
    program.signal()
    assert program.end() == 0
    (warning,) = program.events(level="warning")
    assert warning["step"] == "close bus"
    assert warning["error"] == "ConnectionError: the server is away"
    assert warning["service"] == "odd"


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ("crash", "odd: worker failed: ConnectionError: the server hung up"),
        ("return", "odd: worker returned, but must run until it is stopped"),
    ],
)
def test_a_failed_service_ends_the_process_and_logs_the_cause_in_one_line(
    launch: Launch, behaviour: str, cause: str
):
    program = launch(SLUICE_BEHAVIOUR=behaviour)
    assert program.end() == 1
    (entry,) = program.events(event="process failed")
    assert entry["error"] == cause
    assert entry["level"] == "critical"
    assert "Traceback" not in "".join(program.lines)
    assert len(program.events(event="bus closed")) == 2, "the other service ended in order"


def test_a_failure_at_level_debug_has_a_traceback(launch: Launch):
    program = launch(SLUICE_BEHAVIOUR="crash", SLUICE_LOG_LEVEL="debug")
    assert program.end() == 1
    (entry,) = program.events(event="process failed")
    assert entry["at"].startswith("example.py:")
    assert entry["exception"].startswith("Traceback (most recent call last):")


def test_a_port_in_use_is_logged_in_one_line(launch: Launch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = launch(SLUICE_METRICS_PORT=str(port), SLUICE_LOG_FORMAT="text")
        assert program.end() == 1
    (line,) = program.lines
    assert f"HTTP cannot listen on 127.0.0.1:{port}: Address already in use; choose an" in line


@pytest.mark.parametrize(
    "begin",
    ["handler.start_deadline(); handler.start_deadline()", "os.kill(os.getpid(), signal.SIGTERM)"],
)
def test_a_hanging_shutdown_is_ended_from_outside_the_loop(begin: str):
    script = (
        "import asyncio, os, signal, threading\n"
        "from libs.runtime.process import ShutdownHandler\n"
        "handler = ShutdownHandler(grace_seconds=0.05)\n"
        "handler.install(asyncio.new_event_loop(), print)\n"
        f"{begin}\n"
        "threading.Event().wait()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == "the shutdown hung for 0.05 s: exiting with 1 at once\n"
