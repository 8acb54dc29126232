"""Measures GPUs.

On a node: it samples and serves what it saw under the names that dashboards know. In the cluster:
one page of metrics for the fleet, and health rules that become events. It decides nothing.
"""
