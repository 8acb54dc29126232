"""Dashboards and alerts as data; `tools/dashboards.py` writes the files of them."""
