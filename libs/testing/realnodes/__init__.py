"""Real nodes on this machine: kubelet and containerd in namespaces of their own."""
