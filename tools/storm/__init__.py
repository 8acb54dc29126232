"""A storm over the demo's real processes: `python -m tools.storm --minutes 15`."""
