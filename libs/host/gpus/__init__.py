"""The GPUs of a machine, as the driver's library describes them.

An open library keeps the driver in the kernel: to quiesce is to close it. A GPU that does not
answer is one item of a result, never an error of the whole.
"""
