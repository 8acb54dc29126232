"""A plugin of NRI: a container runtime asks it before it creates a container."""
