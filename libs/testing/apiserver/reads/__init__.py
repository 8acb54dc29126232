"""Reads: one object, a list, a watch."""
