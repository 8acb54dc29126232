"""The kinds that the simulated API server serves, with their defaults and validation."""
