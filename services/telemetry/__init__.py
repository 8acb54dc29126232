"""Measure GPUs.

The node role samples the GPUs and serves the samples under dcgm-exporter's metric names. The
cluster role serves one page of metrics for the fleet.
"""
