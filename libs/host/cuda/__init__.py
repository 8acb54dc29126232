"""CUDA on a machine: whether each GPU computes, and computes right.

`port.Cuda` is the interface. `processes` asks the driver's library in a process of its own for each
GPU, because a call may hang in the driver; `memory` is the one of simulated machines.
"""
