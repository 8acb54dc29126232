"""What is said about the kernel that a node boots next."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import NextKernel
from libs.policy.digest import driver_label, target_digest
from libs.policy.kinds.common import Image
from libs.policy.next_kernel import next_kernel_problem
from libs.policy.variants import Variant
from libs.policy.wanted import InstallMethod, WantedDriver
from tests.unit.policy.situations import node

NEW = "5.15.0-140-generic"
DRIVER = WantedDriver(
    method=InstallMethod.CONTAINER,
    image=Image(repository="r.example/nvidia", image="driver", version="580.95.05"),
)
PRECOMPILED = replace(DRIVER, use_precompiled=True)
PRE_INSTALLED = WantedDriver(method=InstallMethod.PRE_INSTALLED)
IMAGE = f"r.example/nvidia/driver:580.95.05-{NEW}-ubuntu22.04"


def problem(driver: WantedDriver, *labels: str, **fields: Any) -> str:
    return next_kernel_problem(
        replace(NextKernel(release=NEW), **fields),
        pool="clusterpolicy-a",
        driver=driver,
        labels=node("a").labels,
        has_daemon_set=labels.__contains__,
    )


def test_a_precompiled_driver_needs_a_daemon_set_for_the_kernel() -> None:
    found = problem(PRECOMPILED)
    assert found == (
        f"the next boot runs kernel {NEW} (the newest installed kernel), for which there is no"
        " DaemonSet, because no node of the pool runs it yet: make sure first that the precompiled"
        f" image {IMAGE} exists"
    )
    variant = Variant(system="ubuntu", version="22.04", kernel=NEW)
    label = driver_label("clusterpolicy-a", target_digest(PRECOMPILED), variant)
    assert problem(PRECOMPILED, label) == ""


@pytest.mark.parametrize(
    ("driver", "field", "words"),
    [
        (PRE_INSTALLED, "without_driver", "the driver is not installed on the machine"),
        (DRIVER, "without_headers", "whose headers are not installed on the machine"),
    ],
)
def test_of_other_drivers_only_what_the_machine_lacks_is_said(
    driver: WantedDriver, field: str, words: str
) -> None:
    assert words in problem(driver, **{field: True})
    assert problem(driver) == ""
    other = {"without_driver", "without_headers"} - {field}
    assert problem(driver, **dict.fromkeys(other, True)) == ""


def test_where_nothing_is_known_nothing_is_said() -> None:
    for kernel in (None, NextKernel(), NextKernel(reboot_required=True, without_headers=True)):
        assert (
            next_kernel_problem(
                kernel, pool="p", driver=PRECOMPILED, labels={}, has_daemon_set=lambda _: False
            )
            == ""
        )
    assert problem(PRECOMPILED, release="") == ""


def test_the_origin_and_a_pending_reboot_are_named() -> None:
    found = problem(PRECOMPILED, by_boot_entry=True, reboot_required=True)
    assert f"{NEW} (the default boot entry, and the system asks for a reboot)" in found


def test_an_artefact_without_modules_for_the_kernel_is_named() -> None:
    on_host = replace(DRIVER, method=InstallMethod.HOST)
    assert problem(on_host) == ""
    found = problem(on_host, without_driver=True)
    assert f"kernel {NEW}" in found
    assert "for which the driver's artefact has no modules: name a file with them" in found
