"""The distributions and failure rates of a fleet, and the durations observed in one.

The defaults are typical figures, to be replaced by observations. Loads follow the few published
figures for containers that compile nothing on the node: about four minutes for an upgrade, three of
them for the driver. There are no published failure rates; the defaults are high enough that every
path occurs in a fleet of a thousand nodes.
"""

from typing import Annotated

import msgspec

from libs.forecast.world.distributions import Distribution, EmpiricalDistribution, Lognormal

MINUTE = 60.0
HOUR = 3600.0

Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A share of all cases."""


class FleetProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Durations are lognormal; failures are drawn by their rate, independently for each attempt.

    Rates marked as permanent hit the same node, driver or pod at every attempt.
    """

    # How long what ends well takes.

    pull: Lognormal = Lognormal(20.0, 2 * MINUTE)
    init: Lognormal = Lognormal(1.0, 5.0)
    ready: Lognormal = Lognormal(2.0, 15.0)
    job: Lognormal = Lognormal(2 * HOUR, 24 * HOUR)
    """From a job's start to its end."""
    stop: Lognormal = Lognormal(2.0, 20.0)
    boot: Lognormal = Lognormal(5 * MINUTE, 20 * MINUTE)
    unload: Lognormal = Lognormal(4.0, 20.0)
    load: Lognormal = Lognormal(2 * MINUTE, 4 * MINUTE)
    validation: Lognormal = Lognormal(45.0, 2 * MINUTE)
    refusal: Lognormal = Lognormal(3 * MINUTE, 20 * MINUTE)
    """Refusals that end."""

    # How long what fails takes to fail.

    failing: Lognormal = Lognormal(20.0, 2 * MINUTE)
    """A load, unload or validation that fails."""
    crash: Lognormal = Lognormal(2 * HOUR, 48 * HOUR)
    """Until a long-running container crashes."""

    # Kubelets.

    init_fails: Rate = 0.002
    crashes: Rate = 0.002
    """Starts of long-running containers that crash."""
    job_fails: Rate = 0.03
    job_endless: Rate = 0.02
    """Permanent, per pod. The same share applies to jobs that are asked about midway."""
    ignores_stop: Rate = 0.03
    """Containers and pods that end only with their grace period. Permanent."""
    eviction_stuck: Rate = 0.0005
    """Evicted pods that never leave the API. Permanent."""
    never_boots: Rate = 0.002
    """Machines that do not come back from this reboot."""

    # Drivers.

    unload_busy: Rate = 0.005
    unload_hangs: Rate = 0.0005
    never_loads: Rate = 0.002
    """Per node and driver: the driver never loads. Permanent."""
    load_fails: Rate = 0.01
    load_hangs: Rate = 0.001
    never_validates: Rate = 0.001
    """Per node and driver: it loads, but no validation passes. Permanent."""
    validation_fails: Rate = 0.005
    validation_hangs: Rate = 0.001

    # Disruption budgets.

    eviction_refused: Rate = 0.05
    """Pods whose eviction is refused at first. Permanent."""
    eviction_refused_forever: Rate = 0.05
    """The part of those that is refused forever. Permanent."""


class DurationHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Observed seconds of operations that succeeded, named like the fields of `FleetProfile`.

    With `min_samples` or more of a kind they replace its distribution; the rates stay.
    """

    min_samples: Annotated[int, msgspec.Meta(ge=2)] = 30

    pull: tuple[float, ...] = ()
    init: tuple[float, ...] = ()
    ready: tuple[float, ...] = ()
    job: tuple[float, ...] = ()
    stop: tuple[float, ...] = ()
    boot: tuple[float, ...] = ()
    unload: tuple[float, ...] = ()
    load: tuple[float, ...] = ()
    validation: tuple[float, ...] = ()
    refusal: tuple[float, ...] = ()

    def distribution(self, name: str, default: Lognormal) -> Distribution:
        samples: tuple[float, ...] = getattr(self, name)
        return EmpiricalDistribution(samples) if len(samples) >= self.min_samples else default
