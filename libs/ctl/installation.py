"""Find the namespace in which Sluice is installed, by the kubeconfig alone."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from libs.contracts.nats_names import CA_CONFIG_MAP
from libs.ctl.failures import ExitCode, NoWayToNats, kube_failure
from libs.ctl.kubeconfig import context_namespace
from libs.kube.client import Kube
from libs.kube.errors import Forbidden, KubeError
from libs.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS

PEOPLE: Final = "sluice-ctl"
"""The account for which people request tokens."""
_USUAL: Final = ("gpu-operator", "sluice")
"""Where Sluice usually is: the namespace of the README, and of an installation without Helm."""
_NAME_IT: Final = "name its namespace with --namespace or SLUICE_NAMESPACE"


async def find_installations(kube: Kube, kubeconfig: str) -> tuple[str, ...]:
    """Return the namespaces that have Sluice's account; raise `KubeError` if that is not known.

    Who may not list accounts finds it all the same where the Role sluice-people lets them read the
    CA of NATS: in the namespace of the kubeconfig's context, or in a usual one.
    """
    try:
        found = await kube.list_all(SERVICE_ACCOUNTS, fields=f"metadata.name={PEOPLE}")
        return tuple(sorted(each.metadata.namespace for each in found.items))
    except Forbidden:
        likely = await asyncio.to_thread(_likely, kubeconfig)
        can_read = await asyncio.gather(*(_has_readable_ca(kube, each) for each in likely))
        known = tuple(name for name, is_there in zip(likely, can_read, strict=True) if is_there)
        if not known:
            raise
        return known


async def only_installation(kube: Kube, kubeconfig: str, *, address: str) -> str:
    """Return the namespace of the only installation; fail if there is none, or several."""
    try:
        found = await find_installations(kube, kubeconfig)
    except Forbidden:
        likely = await asyncio.to_thread(_likely, kubeconfig)
        raise NoWayToNats(
            ExitCode.NOT_ALLOWED,
            f"you may not list ServiceAccounts in all namespaces, by which Sluice is found, and may"
            f" read no ConfigMap {CA_CONFIG_MAP} in {_either(likely)}",
            f"{_NAME_IT}; if that is one of these, an administrator binds you to the Role"
            f" sluice-people there",
        ) from None
    except KubeError as error:
        raise kube_failure(error) from error
    if not found:
        raise NoWayToNats(
            ExitCode.NOT_FOUND,
            f"no installation of Sluice is found in {address}",
            f"no namespace there has the account {PEOPLE}: check the context of your kubeconfig, or"
            f" name NATS with --nats or SLUICE_NATS_URL",
        )
    first, *others = found
    if others:
        raise NoWayToNats(
            ExitCode.WRONG_ARGUMENTS,
            f"Sluice is installed in {len(found)} namespaces: {', '.join(found)}",
            _NAME_IT.replace("its namespace", "one"),
        )
    return first


def _likely(kubeconfig: str) -> tuple[str, ...]:
    named = context_namespace(kubeconfig, os.environ)
    return tuple(dict.fromkeys(each for each in (named, *_USUAL) if each))


async def _has_readable_ca(kube: Kube, namespace: str) -> bool:
    try:
        await kube.get(CONFIG_MAPS, CA_CONFIG_MAP, namespace=namespace)
    except KubeError:
        return False
    return True


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
