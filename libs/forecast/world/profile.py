"""How a fleet behaves: every distribution and every rate of `Seeded`, by name, and what was seen.

The figures are a middle course, to be replaced by what a fleet has shown. Loads follow the few
figures that are public for containers which compile nothing on the node: about four minutes for an
upgrade, three of them for the driver. For the rates of failure there are no public figures: they
are assumed, high enough that every path is walked in a fleet of a thousand nodes. Must not know how
an answer is drawn.
"""

from typing import Annotated

import msgspec

from libs.forecast.world.distributions import Distribution, EmpiricalDistribution, Lognormal

MINUTE = 60.0
HOUR = 3600.0

Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""The share of cases."""


class FleetProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Times are lognormal; whether something happens is drawn by its rate, each time anew.

    But for the rates that are said to stay: what they hit is hit at every attempt.
    """

    # How long what ends well takes.

    pull: Lognormal = Lognormal(20.0, 2 * MINUTE)
    init: Lognormal = Lognormal(1.0, 5.0)
    ready: Lognormal = Lognormal(2.0, 15.0)
    job: Lognormal = Lognormal(2 * HOUR, 24 * HOUR)
    """From a job's start to its end; of what is under way, what is left of it."""
    stop: Lognormal = Lognormal(2.0, 20.0)
    boot: Lognormal = Lognormal(5 * MINUTE, 20 * MINUTE)
    unload: Lognormal = Lognormal(4.0, 20.0)
    load: Lognormal = Lognormal(2 * MINUTE, 4 * MINUTE)
    validation: Lognormal = Lognormal(45.0, 2 * MINUTE)
    refusal: Lognormal = Lognormal(3 * MINUTE, 20 * MINUTE)
    """Of what a disruption budget refuses at first, and not for ever."""

    # How long what fails takes to fail.

    failing: Lognormal = Lognormal(20.0, 2 * MINUTE)
    """A load, an unload or a validation."""
    crash: Lognormal = Lognormal(2 * HOUR, 48 * HOUR)
    """A container that is meant to run for ever."""

    # Kubelets.

    init_fails: Rate = 0.002
    crashes: Rate = 0.002
    """Of the starts of containers that are meant to run for ever."""
    job_fails: Rate = 0.03
    job_endless: Rate = 0.02
    """Stays, by pod. Of jobs that are asked about midway it is the share among those too."""
    ignores_stop: Rate = 0.03
    """Containers and pods that end only when their grace does. Stays."""
    eviction_stuck: Rate = 0.0005
    """Evicted pods that never leave the API. Stays."""
    never_boots: Rate = 0.002
    """Machines that do not come back from that reboot."""

    # Drivers.

    unload_busy: Rate = 0.005
    unload_hangs: Rate = 0.0005
    never_loads: Rate = 0.002
    """Of node and driver: this driver never loads on this node. Stays."""
    load_fails: Rate = 0.01
    load_hangs: Rate = 0.001
    never_validates: Rate = 0.001
    """Of node and driver: it loads there, and no validation ever passes. Stays."""
    validation_fails: Rate = 0.005
    validation_hangs: Rate = 0.001

    # Disruption budgets.

    eviction_refused: Rate = 0.05
    """Pods whose eviction is refused at first. Stays."""
    eviction_refused_forever: Rate = 0.05
    """Of those, the ones that are refused for ever. Stays."""


class DurationHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that were seen in this fleet, of what ended well, by the same names as the habits.

    As soon as there are `enough` of a kind they stand in the place of its distribution; the rates
    remain those of the habits.
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
        """What was seen of it, if that is enough."""
        samples: tuple[float, ...] = getattr(self, name)
        return EmpiricalDistribution(samples) if len(samples) >= self.min_samples else default
