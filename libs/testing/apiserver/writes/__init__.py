"""Writes to objects: create, update, patch, apply, delete, evict."""
