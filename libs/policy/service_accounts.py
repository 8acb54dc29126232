"""Under which ServiceAccounts our pods run: the bus and RBAC know them by these names."""

from typing import Final

from libs.contracts.identities import Writer

DRIVER_ACCOUNT: Final = "nvidia-driver"
"""Of the vendor's driver container, under the name that people know; it may do nothing."""


def service_account_of(writer: Writer) -> str:
    """A service's or an agent's."""
    return f"sluice-{writer.value}"
