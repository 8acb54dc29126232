"""Parsing of requests, and their replies."""
