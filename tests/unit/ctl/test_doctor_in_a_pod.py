"""What tests on real nodes read of `sluice doctor` in a pod is what it says."""

import io

import pytest
from rich.console import Console

from libs.ctl.checks import Check, fault, ok
from libs.ctl.views.doctor import doctor_view
from tests.system.install.doctor import ok_checks

GOOD = [ok(about, "as it should be") for about in ("Kubernetes", "agents and drivers", "NATS")]


def logged(*checks: Check) -> str:
    """Return what a pod logs, on lines so short that they are broken."""
    console = Console(file=io.StringIO(), width=50)
    console.print(doctor_view(checks))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def quoted(log: str) -> str:
    """Return it as Helm prints it."""
    return 'Phase: Succeeded\nlevel=INFO msg="' + log.replace("\n", "\\n") + '"\n'


def test_the_line_of_what_is_ok_is_read_from_a_log_and_from_helm() -> None:
    log = logged(*GOOD)
    assert len(log.splitlines()) > 1
    names = {"Kubernetes", "agents and drivers", "NATS"}
    assert ok_checks(log) == ok_checks(quoted(log)) == names


def test_a_fault_is_found() -> None:
    log = logged(*GOOD, fault("scheduler", "no one answers", "see its pods"))
    for said in (log, quoted(log)):
        with pytest.raises(AssertionError):
            ok_checks(said)
