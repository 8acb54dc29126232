"""The settings of the process."""

from libs.bus.agent import AgentSettings
from libs.host.podresources.client import SOCKET


class DraSettings(AgentSettings, frozen=True, kw_only=True):
    kubelet_plugins: str = "/var/lib/kubelet/plugins"
    """The folder of the kubelet's plugins, as the kubelet names it."""
    plugins: str = "/var/lib/kubelet/plugins"
    """The same folder in this process."""
    plugin_registry: str = "/var/lib/kubelet/plugins_registry"
    """The folder in which the kubelet finds plugins, in this process."""
    pod_resources: str = SOCKET
    """The kubelet's socket that says which containers have which devices."""
    ends: bool = False
    """Whether the policy gives GPUs by claims no more: prepare none, and keep what pods have."""
    kubeconfig: str = ""
    """Path; empty: from the environment, or of the pod's account."""
