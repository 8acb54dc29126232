"""Access to a machine under a root directory: sysfs, procfs, files, kernel modules and GPUs.

Decisions about what to change belong to the callers.
"""
