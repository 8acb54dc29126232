"""Which containers use which GPUs, from the kubelet's pod-resources API."""
