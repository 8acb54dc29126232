"""A real Kubernetes control plane on the loopback: find or build, start, break and remove."""
