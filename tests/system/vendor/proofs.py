"""The validator's proof of a driver, on the guest's own kernel. Run in it."""

from contextlib import closing

from libs.contracts.commands import Validate
from libs.host.tree import Tree
from libs.testing.vendor import actions
from libs.testing.vendor.layout import Driver
from services.validator.node.driver_check import probe_driver
from services.validator.node.probe import Probe


def prove(driver: Driver) -> Probe:
    """Prove once the driver that is loaded, through this one's library."""
    with closing(actions.gpus_of(driver)) as gpus:
        return probe_driver(Tree("/"), gpus, Validate(label="d-1"))
