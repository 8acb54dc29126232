"""The kubelet's API for drivers of dynamic resource allocation: registration, and claims."""
