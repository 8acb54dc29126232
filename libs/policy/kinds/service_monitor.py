"""Settings of a ServiceMonitor, by which a Prometheus Operator finds what to scrape."""

from typing import Annotated

from libs.policy.kinds.common import DURATION_PATTERN, Labels
from libs.policy.shapes import About, FreeForm, PolicyStruct

IN_MONITOR = "set on the ServiceMonitor"
OF_PROMETHEUS = "the global setting of Prometheus"


class ServiceMonitor(PolicyStruct, frozen=True, kw_only=True):
    """Settings of a Prometheus ServiceMonitor."""

    enabled: Annotated[
        bool,
        About(
            "Whether a ServiceMonitor is created.",
            effect="true: creates it, once the cluster has the kind ServiceMonitor of the"
            " Prometheus Operator; until then a condition of the policy says what is missing",
            unsupported=True,
        ),
    ] = False
    interval: Annotated[
        str,
        About(
            "The scrape interval.", effect=IN_MONITOR, unset=OF_PROMETHEUS, pattern=DURATION_PATTERN
        ),
    ] = ""
    scrape_timeout: Annotated[
        str,
        About(
            "When a scrape times out.",
            effect=IN_MONITOR,
            unset=OF_PROMETHEUS,
            pattern=DURATION_PATTERN,
        ),
    ] = ""
    honor_labels: Annotated[
        bool, About("Whether labels of scraped metrics take precedence.", effect=IN_MONITOR)
    ] = False
    additional_labels: Annotated[
        Labels, About("Additional labels of the ServiceMonitor.", effect=IN_MONITOR)
    ] = {}
    relabelings: Annotated[tuple[FreeForm, ...], About("Relabeling rules.", effect=IN_MONITOR)] = ()
