"""When a GPU is degraded or failed: rules over what was measured. Pure."""
