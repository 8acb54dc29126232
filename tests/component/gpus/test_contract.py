"""The suite of all `Gpus`, through pynvml."""

from tests.unit.host.gpus_suite import GpusSuite


class TestNvmlGpus(GpusSuite):
    """The suite, against the stand-in."""
