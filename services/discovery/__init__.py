"""Find GPUs and describe nodes.

The node role reports facts (PCI, kernel, OS, CPU, memory, NVML) when they change, and changes
nothing on the machine. The cluster role turns facts into node labels and is their only writer.
"""
