"""Removes Sluice from a cluster: hosts first, then what it wrote at the API server.

A role that runs once, before the chart's own objects are removed. Every step can be repeated: a run
that fails leaves the rest to the next one.
"""
