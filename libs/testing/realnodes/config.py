"""The settings of what runs on a real node."""

import json
from typing import Any, Final

from libs.testing.realnodes.build import PAUSE_IMAGE, Containerd

API_SERVER: Final = ("10.0.0.1", 443)
"""Where a node and its pods reach the API server, whose certificate covers this address."""
GATEWAY: Final = "10.77.0.1"
"""The control plane, in the network of the nodes."""


def node_address(index: int) -> str:
    """Return the address of a node; they are numbered from 1."""
    return f"10.77.0.{10 + index}"


def pod_network(index: int) -> str:
    """Return the addresses of a node's pods."""
    return f"10.88.{index}.0/24"


def cni(index: int) -> str:
    """Return the configuration of the pods' network."""
    ranges = [[{"subnet": pod_network(index)}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": "/run/cni-ipam",
        },
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]})


def containerd(version: Containerd) -> str:
    """Return containerd's configuration; drop-in files are read from its folder `conf.d`."""
    return _CONTAINERD_2 if version is Containerd.V2 else _CONTAINERD_1_7


_RUNC: Final = """\
  default_runtime_name = "runc"

[plugins."{plugin}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."{plugin}".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""
_CONTAINERD_2: Final = f"""\
version = 3
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true

[plugins."io.containerd.nri.v1.nri"]
  plugin_request_timeout = "60s"
  plugin_registration_timeout = "60s"

[plugins."io.containerd.cri.v1.runtime".containerd]
{_RUNC.format(plugin="io.containerd.cri.v1.runtime")}"""
_CONTAINERD_1_7: Final = f"""\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
{_RUNC.format(plugin="io.containerd.grpc.v1.cri")}"""


def kubelet() -> str:
    """Return the kubelet's configuration; its own API asks for no credentials."""
    settings: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "enforceNodeAllocatable": ["pods"],
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "1s",
        "resolvConf": "/run/resolv.conf",
        "shutdownGracePeriod": "0s",
    }
    return json.dumps(settings)


def network(index: int, nodes: int) -> list[list[str]]:
    """Return the commands that set up the network of one of so many nodes, once `eth0` is there."""
    commands = [
        "ip link set lo up",
        f"ip addr add {API_SERVER[0]}/32 dev lo",
        f"ip addr add {node_address(index)}/24 dev eth0",
        "ip link set eth0 up",
        f"ip route add default via {GATEWAY}",
        "sysctl -q -w net.ipv4.ip_forward=1",
        *(
            f"ip route add {pod_network(other)} via {node_address(other)}"
            for other in range(1, nodes + 1)
            if other != index
        ),
    ]
    return [command.split() for command in commands]
