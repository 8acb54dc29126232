"""NVIDIA's own driver for tests: fetched and compiled once, into a cache, never shipped."""
