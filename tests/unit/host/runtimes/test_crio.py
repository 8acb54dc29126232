import pytest

from libs.host.runtimes import crio
from libs.host.runtimes.common import NotConfigurable

PACKAGED = """\
# Of the package.
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = ["io.containers.trace-syscall"]
[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
"""
GOLDEN = """\

[crio.runtime.runtimes.nvidia]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = ["io.containers.trace-syscall"]

[crio.runtime.runtimes.nvidia-cdi]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = ["io.containers.trace-syscall"]
"""
OWN = '[crio.runtime]\ndefault_runtime = "runc"\n'
THEIRS = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n'


def test_handlers_are_aliases_of_the_default_runtime() -> None:
    assert crio.configure({"/etc/crio/crio.conf.d/10-crio.conf": PACKAGED}) == GOLDEN


def test_a_later_file_chooses_the_default() -> None:
    made = crio.configure({"10": PACKAGED, "20": OWN, "30": THEIRS})
    expected = '\n[crio.runtime.runtimes.nvidia-cdi]\nruntime_path = "/usr/libexec/crio/runc"\n'
    assert made == expected


def test_nothing_is_written_where_both_handlers_are_there() -> None:
    both = THEIRS + THEIRS.replace("runtimes.nvidia", "runtimes.nvidia-cdi")
    assert crio.configure({"10": PACKAGED, "20": both}) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not say where its default runtime is"),
        (OWN, "does not say where its default runtime runc is"),
        ("crio = 1", "crio in a is no table"),
        ("[crio.runtime]\nruntimes = []", "runtimes in a is no table"),
        ("[crio", "a is not valid TOML"),
        (f"a = {'9' * 5000}", "a is not valid TOML"),
        (f"a = 0x{'f' * 5000}", "a is not valid TOML"),
    ],
)
def test_what_cannot_be_understood_is_left_alone(text: str, problem: str) -> None:
    with pytest.raises(NotConfigurable, match=problem):
        crio.configure({"a": text})
