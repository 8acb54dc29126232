"""The suites of all `Gpus`, through pynvml."""

from tests.unit.host.gpus_suite import GpusSuite
from tests.unit.host.mig_suite import MigSuite


class TestNvmlGpus(GpusSuite, MigSuite):
    """The suites, against the stand-in."""
