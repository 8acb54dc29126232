"""What the driver agent can be told; the names are those that its pod is rendered with."""

from libs.bus.place import AgentSettings
from libs.host import driver_files


class DriverAgentSettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of the driver agent."""

    driver_dir: str = driver_files.ROOT
    """Where the machine sees the driver container's root."""
    change_this_machine: bool = False
    """Whether the real kernel may be asked to unload modules."""
    toolkit: bool = True
    """Whether the container runtime is to be told of GPUs."""
    toolkit_dir: str = "/usr/local/nvidia"
    runtime_class: str = "nvidia"
    mig_manager: bool = False
    """Whether GPUs are sliced as their node's label says."""
    mig_default: str = ""
    """The layout of a node without that label."""
