"""From pools to the operands that carry them out, as plain objects of Kubernetes.

Here may live: what DaemonSets, ConfigMaps and RuntimeClasses look like. Here must not live: who
applies them and when, what an object on the server looks like now, and whom nodes belong to.
"""
