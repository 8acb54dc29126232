"""Finds GPUs and describes nodes.

On a node: PCI, kernel, OS, CPU, memory and NVML become facts, reported on change. In the cluster:
facts become node labels and `Device` objects. It is the only writer of those labels. It changes
nothing on a machine.
"""
