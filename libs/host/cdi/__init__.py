"""CDI specs: what a container runtime gives a container that asks for a GPU, without any hook.

`spec` is the format, `published` the files on a machine. A spec is made in `generate` from the GPUs
that NVML describes and from the driver's root file system: its files are found by `driver_root`.
`extras` makes the specs of what containers get beside GPUs.
"""
