"""What the telemetry agent can be told; the names are those that its pod is rendered with."""

from typing import Literal

from libs.bus.place import AgentSettings
from libs.runtime.http import HttpSettings


class TelemetrySettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of the telemetry agent."""

    exporter: HttpSettings = HttpSettings(port=9400)
    """Where the page for dashboards is."""
    hostname_label: Literal["Hostname", "hostname"] = "Hostname"
    """How samples call the node: dcgm-exporter spells it small after 4.5.3-4.8.2."""
