"""What is missing for the kernel that a node boots next. Only what can be known is said."""

from collections.abc import Callable, Mapping
from typing import Final

from libs.contracts.facts import NextKernel
from libs.contracts.words import excerpt
from libs.policy.digest import driver_label, target_digest
from libs.policy.findings import Finding
from libs.policy.variants import KERNEL_LABEL, known_variant, variant_image
from libs.policy.wanted import InstallMethod, WantedDriver

_LONGEST: Final = 64


def next_kernel_problem(
    kernel: NextKernel | None,
    *,
    pool: str,
    driver: WantedDriver,
    labels: Mapping[str, str],
    has_daemon_set: Callable[[str], bool],
) -> str:
    """Return why the node may have no driver after its next boot; empty: nothing is known.

    `labels` describe the system of the node; `has_daemon_set` is asked for a driver label.
    """
    if kernel is None or not kernel.release:
        return ""
    release = excerpt(kernel.release, _LONGEST)
    origin = "the default boot entry" if kernel.by_boot_entry else "the newest installed kernel"
    asked = ", and the system asks for a reboot" if kernel.reboot_required else ""
    after = f"the next boot runs kernel {release} ({origin}{asked})"
    if driver.method is InstallMethod.PRE_INSTALLED:
        if not kernel.without_driver:
            return ""
        return f"{after}, for which the driver is not installed on the machine: install it first"
    if driver.method is InstallMethod.HOST:
        if not kernel.without_driver:
            return ""
        return (
            f"{after}, for which the driver's artefact has no modules: name a file with them in"
            " ConfigMap sluice-driver-artefacts first"
        )
    if driver.use_precompiled:
        variant = known_variant(driver, {**labels, KERNEL_LABEL: release})
        if variant is None or has_daemon_set(driver_label(pool, target_digest(driver), variant)):
            return ""
        image = variant_image(driver.image, variant)
        named = "" if isinstance(image, Finding) else f" {image}"
        return (
            f"{after}, for which there is no DaemonSet, because no node of the pool runs it yet:"
            f" make sure first that the precompiled image{named} exists"
        )
    if not kernel.without_headers:
        return ""
    return (
        f"{after}, whose headers are not installed on the machine, unlike those of the running"
        " kernel: install them first if the driver is built with them"
    )
