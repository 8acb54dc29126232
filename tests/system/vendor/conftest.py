"""One guest for all tests with NVIDIA's own drivers."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from libs.testing.guest import actions as guest_actions
from libs.testing.guest.guest import Guest
from libs.testing.vendor import actions
from libs.testing.vendor.build import drivers, find_vendor
from tests.grounds import standing, starting
from tests.run.plan import GroundKind
from tests.summary import GROUND
from tests.system.guest.guest_kernel import GuestKernelFixture
from tests.system.vendor.vendor_guest import VendorGuest

SEARCH = find_vendor(os.environ)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests in the guest on one worker: each process would start its own."""
    for item in items:
        if "vendor" in getattr(item, "fixturenames", ()):
            item.add_marker(GroundKind.VENDOR.marker())
            item.user_properties.append((GROUND, f"Vendor: {SEARCH.explanation}"))


@pytest.fixture(scope="session")
def vendor_guest(request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A guest with the kernel that NVIDIA's modules were compiled for, if they were."""
    if SEARCH.folder is None:
        pytest.skip(SEARCH.explanation)
    with starting(request):
        guest = asyncio.run(Guest.start(SEARCH.folder))
    with standing(request, guest.problem):
        yield guest
    asyncio.run(guest.stop())


@pytest.fixture
async def vendor(vendor_guest: Guest) -> AsyncIterator[VendorGuest]:
    """The guest with two A100s, without a driver, processes and mounts of other tests."""
    assert SEARCH.folder is not None
    await vendor_guest.call(actions.forget_kernel_log)
    old, new = drivers(SEARCH.folder)[:2]
    yield VendorGuest(vendor_guest, old, new)
    if vendor_guest.problem() is None:
        await vendor_guest.call(guest_actions.reset)


@pytest.fixture
def kernel(vendor: VendorGuest) -> GuestKernelFixture:
    load = partial(actions.load_driver, vendor.old.files())
    return GuestKernelFixture(vendor.guest, version=vendor.old.version, load=load)
