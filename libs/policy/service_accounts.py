"""Names of the ServiceAccounts of Sluice's pods; the bus and RBAC identify pods by them."""

from typing import Final

from libs.contracts.identities import Writer

DRIVER_ACCOUNT: Final = "nvidia-driver"
"""The account of driver pods, named as in the GPU Operator. It has no permissions."""


def service_account_of(writer: Writer) -> str:
    return f"sluice-{writer.value}"
