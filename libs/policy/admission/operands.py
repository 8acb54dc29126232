"""The driver service applies pods of the kinds that Sluice renders. Pure.

It may write DaemonSets in a namespace that admits privileged pods. Without this, whoever takes it
over could have a pod with any account and any Secret of the namespace: the keys of the bus, with
which one is every identity, and each program's rights. What remains is root on the nodes where
its DaemonSets run, which is what an agent or a driver is.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from libs.policy.admission.policy import Object, Rule, admission_policy, user_of

OWN_SECRETS: Final = "sluice-"
"""How the names of Sluice's own Secrets begin, in which the keys of the bus are."""
BUS_AUDIENCE: Final = "sluice"

_VARIABLES: Final = {
    "isPod": "request.resource.resource == 'pods'",
    "pod": "variables.isPod ? object.spec : object.spec.template.spec",
    "account": "variables.pod.?serviceAccountName.orValue('default')",
    "containers": (
        "variables.pod.containers + variables.pod.?initContainers.orValue([]) +"
        " variables.pod.?ephemeralContainers.orValue([])"
    ),
    "volumes": "variables.pod.?volumes.orValue([])",
}
_RULES: Final = (
    Rule(
        expression=(
            "variables.volumes.all(volume, has(volume.hostPath) || has(volume.configMap) ||"
            " has(volume.emptyDir) || (has(volume.projected) &&"
            " volume.projected.?sources.orValue([]).all(each,"
            " has(each.configMap) || (has(each.serviceAccountToken) &&"
            f" each.serviceAccountToken.?audience.orValue('') == '{BUS_AUDIENCE}'))))"
        ),
        message=(
            "pods that the driver service applies mount paths of the host, ConfigMaps, empty"
            " folders and tokens for the bus: nothing else"
        ),
    ),
    Rule(
        expression=(
            "variables.containers.all(container,"
            " container.?env.orValue([]).all(each, !has(each.valueFrom) ||"
            " !has(each.valueFrom.secretKeyRef)) &&"
            " container.?envFrom.orValue([]).all(each, !has(each.secretRef) ||"
            " (!variables.isPod &&"
            f" !each.secretRef.?name.orValue('').startsWith('{OWN_SECRETS}'))))"
        ),
        message=(
            "pods that the driver service applies have no Secret in their environment but the one"
            f" that spec.driver.secretEnv names, whose name may not begin with {OWN_SECRETS}"
        ),
    ),
    Rule(
        expression=(
            "!variables.isPod || (!variables.pod.?hostPID.orValue(false) &&"
            " variables.volumes.all(volume, !has(volume.hostPath)) &&"
            " variables.containers.all(container,"
            " !container.?securityContext.?privileged.orValue(false) &&"
            " size(container.?securityContext.?capabilities.?add.orValue([])) == 0))"
        ),
        message=(
            "single pods that the driver service applies bring an image or prove a node: they are"
            " not privileged, and mount nothing of the host"
        ),
    ),
)


def limit_of_operands(
    namespace: str,
    *,
    account: str,
    agents: Collection[str],
    drivers: str,
    asking: str,
    labels: Mapping[str, str],
) -> Iterator[Object]:
    """Yield the policy.

    Such pods have the accounts of `agents` and `drivers`, of which `asking` alone may speak to the
    API server.
    """
    known = ", ".join(f"'{each}'" for each in sorted((drivers, *agents)))
    of_account = Rule(
        expression=(
            f"variables.account in [{known}] && (variables.account == '{asking}' ||"
            " !variables.pod.?automountServiceAccountToken.orValue(true))"
        ),
        message=(
            "pods that the driver service applies have an account of Sluice's agents or drivers,"
            f" and no token for the API server, besides those of {asking}"
        ),
    )
    of_network = Rule(
        expression=(
            f"((!variables.isPod && variables.account == '{drivers}') ||"
            " !variables.pod.?hostNetwork.orValue(false)) &&"
            " !variables.pod.?hostIPC.orValue(false)"
        ),
        message=(
            "pods that the driver service applies have a network of their own, besides those of a"
            " driver, for which spec.driver.hostNetwork can say otherwise"
        ),
    )
    yield from admission_policy(
        f"{namespace}-sluice-operands",
        labels,
        users=(user_of(namespace, account),),
        resources={"apps": ("daemonsets",), "": ("pods",)},
        variables=_VARIABLES,
        rules=(of_account, of_network, *_RULES),
    )
