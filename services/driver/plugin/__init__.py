"""The device plugin of a node: offers its GPUs to the kubelet.

`config` and `config_file` are its settings, `resources` the devices by resource, `replicas` how
they are shared, `allocation` and `preferred` the answers to the kubelet, and `sickness` which GPUs
are unhealthy; `inventory` joins them. These are pure. `claimed` asks the kubelet which GPUs pods
have by claims. `offering` reads the GPUs and serves what they come to, and `agent` runs it on the
bus.
"""
