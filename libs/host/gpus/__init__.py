"""The GPUs of a machine, as the driver's own library describes them: a port, and who stands behind.

Whoever holds the library open keeps the driver in the kernel: `quiesce` is `close`. A GPU that does
not answer is one item of the answer, never an error of the whole.
"""
