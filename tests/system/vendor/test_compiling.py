"""A driver that an update of the kernel broke, as `make vendor` tells it."""

from pathlib import Path

import pytest

from libs.testing.go_build import NotBuilt
from libs.testing.guest.build import KernelPackages
from libs.testing.vendor.compiling import add_driver, fetch
from libs.testing.vendor.layout import Driver
from libs.testing.vendor.releases import Release
from tests.system.vendor.conftest import SEARCH

BROKEN = Release(version="535.261.03", revision="1", kernel_source="nvidia-open-kernel-source")


@pytest.mark.soak("it fetches a third driver and compiles it, for two CPU minutes")
@pytest.mark.skipif(SEARCH.folder is None, reason=SEARCH.explanation)
def test_modules_that_a_kernel_update_broke_are_told_with_file_line_and_what_to_do(
    tmp_path: Path,
) -> None:
    report = list[str]().append
    kernel = KernelPackages.unpack(tmp_path / "kernel", report)
    unpacked = fetch(BROKEN, tmp_path, report)
    driver = Driver(BROKEN.version, tmp_path / "driver")
    with pytest.raises(NotBuilt) as refused:
        add_driver(BROKEN, driver, unpacked, kernel, report)
    said = str(refused.value)
    assert f"the modules of 535.261.03 for the kernel {kernel.name} do not compile" in said
    assert "add a repair to releases.toml" in said
    assert "nvidia/nv-pci.c:" in said
    assert "too few arguments" in said
    assert "pci_resize_resource" in said
    assert not driver.folder.exists()
