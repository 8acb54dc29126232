"""What NATS is called where Sluice is installed, for whoever makes it and whoever looks for it."""

from typing import Final

SERVICE: Final = "sluice-nats"
"""The Service of NATS, by which clients connect, and the StatefulSet."""
MOST_SERVERS: Final = 3
PODS: Final = tuple(f"{SERVICE}-{index}" for index in range(MOST_SERVERS))
"""The pods that there can be; one server has the first."""
PORT: Final = 4222
CA_CONFIG_MAP: Final = "sluice-nats-ca"
"""The ConfigMap with the CA's certificate, for clients."""
CA_FILE: Final = "ca.crt"
