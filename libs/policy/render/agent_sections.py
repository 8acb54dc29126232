"""What the sections of a policy that one agent carries out say together of its container."""

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence

from libs.policy.kinds.common import AgentSection, ResourceRequirements
from libs.policy.shapes import IntOrString
from libs.policy.wanted import DEFAULT_PULL_POLICY


def pull_policy(sections: Sequence[AgentSection], default: str) -> str:
    """Return when the image is pulled: the first section counts that has not the default.

    The GPU Operator's chart writes the default into every section, so that in the first one it
    would hide what a person wrote into the next.
    """
    given = [section.image_pull_policy for section in sections if section.image_pull_policy]
    chosen = (policy for policy in given if policy != DEFAULT_PULL_POLICY)
    return next(chosen, given[0] if given else default)


def resources(
    sections: Sequence[AgentSection], defaults: ResourceRequirements
) -> ResourceRequirements:
    """Merge requirements; for each resource, the first section that sets it takes precedence.

    A resource with a limit or a request of the policy has no default: a request may not exceed
    its limit, and the default could be on either side.
    """
    limits = dict(ChainMap(*(dict(section.resources.limits) for section in sections)))
    requests = dict(ChainMap(*(dict(section.resources.requests) for section in sections)))
    chosen = {*limits, *requests}
    return ResourceRequirements(
        limits=_without(defaults.limits, chosen) | limits,
        requests=_without(defaults.requests, chosen) | requests,
    )


def _without(
    amounts: Mapping[str, IntOrString], resources: Collection[str]
) -> dict[str, IntOrString]:
    return {name: amount for name, amount in amounts.items() if name not in resources}
