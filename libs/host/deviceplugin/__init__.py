"""The kubelet's device plugin API: one gRPC server for each resource, and its registration."""
