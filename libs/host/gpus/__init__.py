"""The GPUs of a machine, as the driver's library describes them.

An open library keeps the driver in the kernel, so an agent closes it to quiesce. A GPU that does
not answer is one item of a result; it does not fail the call.
"""
