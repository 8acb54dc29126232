"""The part of the suite of all kernels that needs no GPU that works, with NVIDIA's own modules."""

from tests.unit.host.kernel_suite import DriverSuite


class TestVendorDriver(DriverSuite):
    pass
