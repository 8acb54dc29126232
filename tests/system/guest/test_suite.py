"""The suite of all kernels, on a real one."""

from tests.unit.host.kernel_suite import KernelSuite


class TestRealKernel(KernelSuite):
    pass
