"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """`metav1.Time` of Unix seconds: conditions, events."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """`metav1.MicroTime` of Unix seconds: leases."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """The way back: Unix seconds of either; where no zone is named, it is UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
