"""The configuration of the device plugin, in the format of NVIDIA's. Pure."""
