"""The way back from a time as Kubernetes writes it."""

from datetime import datetime


def seconds(text: str) -> float:
    """Unix seconds of a `metav1.Time` or `MicroTime`."""
    return datetime.fromisoformat(text).timestamp()
