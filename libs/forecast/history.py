"""What a fleet's own upgrades took, as the records of its nodes say.

A record keeps how long the node's last upgrade spent in each state, and its bring-up. It lives as
long as the Node: longer than any event, without a store of its own. The figures come from Nodes, so
each is bounded before it is used.

Until enough nodes were upgraded, bring-ups of the same machines stand for upgrades. They load and
validate a driver as well, but pull its image and end no earlier one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist, fmean, median, pvariance

import msgspec

from libs.contracts.node import UpgradeState
from libs.rollout.step_times import BRING_UP, PULL
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView

RESTART, VALIDATION = UpgradeState.POD_RESTART_REQUIRED, UpgradeState.VALIDATION_REQUIRED
_LEAST_NODES = 3
"""Nodes of which a distribution can be known."""
_LONGEST = 86_400.0
"""Seconds that a state may have taken; more is no measurement."""
_REFUSED = 60.0
"""Seconds within which pods leave whose eviction is not refused."""
_OWN_SHARE = 0.5
"""How much of a node's difference from the others is taken for its own, and not for chance."""
_NORMAL_QUARTILE = 0.6745
_LEAST_SPREAD = 0.05
_STANDARD = NormalDist()


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one part of an upgrade: lognormal over the fleet, and each node's own."""

    middle: float
    """Of the logarithms of the seconds."""
    spread: float
    """Their standard deviation."""
    own: Mapping[str, float]
    """The logarithm for each measured node, by name."""

    def quantile(self, share: float) -> float:
        """Return the seconds within which this share of the fleet is through."""
        return math.exp(self.middle + self.spread * _STANDARD.inv_cdf(share))

    def of_node(self, name: str, share: float) -> float:
        """Return that of one node, which resembles what it took before."""
        own = self.own.get(name)
        if own is None:
            return self.quantile(share)
        middle = self.middle + _OWN_SHARE * (own - self.middle)
        spread = self.spread * math.sqrt(1.0 - _OWN_SHARE**2)
        return math.exp(middle + spread * _STANDARD.inv_cdf(share))


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The measured parts of upgrades; None: too few nodes were seen."""

    nodes: int = 0
    """The number of nodes of which the last upgrade, or the bring-up, was measured."""
    brought_up: bool = False
    """Whether restarts are those of bring-ups, with the pull of the image."""
    pull: Measured | None = None
    """Of the driver's image, when nodes were brought up."""
    restart: Measured | None = None
    """From the move of the driver label until the new driver is ready."""
    validation: Measured | None = None
    eviction: Measured | None = None
    """Of the pods of a node that had some, with the release of the devices."""
    emptied: int = 0
    """The number of nodes that had pods to evict."""
    refused: int = 0
    """Of those, the ones that took so long that a disruption budget must have refused."""


NOTHING = History()


def history_of(fleet: Fleet, pool: str, *, evicting_longer_than: float) -> History:
    """Return what the upgrades of a pool's nodes took.

    Nodes that took no longer to be emptied than this had no pods to evict.
    """
    nodes = [node for node in fleet.nodes.values() if node.pool == pool]
    restart = _seconds(nodes, RESTART)
    brought_up = len(restart) < _LEAST_NODES
    if brought_up:
        restart = _with_bring_ups(nodes, RESTART)
    emptied = _seconds(nodes, UpgradeState.POD_DELETION_REQUIRED)
    had_pods = {name: each for name, each in emptied.items() if each > evicting_longer_than}
    evicted = {name: each for name, each in had_pods.items() if each <= _REFUSED}
    return History(
        nodes=len(restart),
        brought_up=brought_up,
        restart=_measured(restart),
        validation=_measured(_with_bring_ups(nodes, VALIDATION)),
        pull=_measured(_seconds(nodes, PULL)),
        eviction=_measured(evicted),
        emptied=len(had_pods),
        refused=len(had_pods) - len(evicted),
    )


def _with_bring_ups(nodes: Sequence[NodeView], state: str) -> dict[str, float]:
    """Return the times of a state by node: of the last upgrade, or else of the bring-up."""
    return {**_seconds(nodes, f"{BRING_UP}{state}"), **_seconds(nodes, state)}


def _seconds(nodes: Iterable[NodeView], state: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in nodes:
        record = node.current_record
        seconds = record.took.get(state, 0.0) if record is not None else 0.0
        if 0.0 < seconds <= _LONGEST:
            found[node.name] = seconds
    return found


def _measured(seconds: Mapping[str, float]) -> Measured | None:
    if len(seconds) < _LEAST_NODES:
        return None
    logs = {name: math.log(each) for name, each in seconds.items()}
    usual = _usual(list(logs.values()))
    count = len(usual)
    # A further upgrade differs from the mean of few by more than they do.
    further = (count + 1) / max(1, count - 1)
    spread = max(_LEAST_SPREAD, math.sqrt(further * pvariance(usual)))
    return Measured(middle=fmean(usual), spread=spread, own=logs)


def _usual(logs: list[float]) -> list[float]:
    """Return the logarithms without those far from the most: attempts that failed and hung."""
    middle = median(logs)
    robust = median(abs(each - middle) for each in logs) / _NORMAL_QUARTILE
    limit = 3.0 * max(robust, _LEAST_SPREAD)
    return [each for each in logs if abs(each - middle) <= limit]
