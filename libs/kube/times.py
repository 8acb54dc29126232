"""Kubernetes timestamps."""

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """Format Unix seconds as `metav1.Time` (conditions, events)."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Format Unix seconds as `metav1.MicroTime` (leases)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Return the Unix seconds of either format; a time without a zone is UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
