"""Everything that touches a machine, under a root directory.

Here may live: readers of sysfs and procfs, files with their inverse, systemd, container runtimes,
the kernel port, and GPUs. The only importer of pynvml. Here must not live: a decision about what
to change, or knowledge of who asked.
"""
