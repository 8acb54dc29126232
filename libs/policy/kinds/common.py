"""The definition of a kind, and parts that several share: images, probes, conditions."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec

from libs.policy.shapes import (
    About,
    FieldDetails,
    IntOrString,
    PolicyStruct,
    Rule,
    Shape,
    shape_of,
)

IMAGE_PATTERN = r"[a-zA-Z0-9\-]+"
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
DURATION_PATTERN = (
    r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
)
OUR_IMAGE = "one of Sluice's agents does this, with the image of the Sluice release"
OUR_ARGUMENTS = "one of Sluice's agents does this, with its own arguments"
OUR_NETWORK = "one of Sluice's agents does this, with its own network settings"
OUR_SETTINGS = "one of Sluice's agents does this, with its own settings"
NO_OPERATOR = "Sluice has no operator pod"
IN_CONTAINER = "set in the container"

Labels = dict[str, str]


class EnvVar(PolicyStruct, frozen=True, kw_only=True):
    """An environment variable with a literal value."""

    name: Annotated[str, About("The name of the variable.", required=True)] = ""
    value: Annotated[str, About("The value of the variable.")] = ""


def _quantities(description: str, unset: str = "") -> About:
    return About(description, effect="set on the container", unset=unset, pattern=QUANTITY_PATTERN)


class ResourceRequirements(PolicyStruct, frozen=True, kw_only=True):
    """Resource limits and requests of a container."""

    limits: Annotated[dict[str, IntOrString], _quantities("Resource limits.")] = {}
    requests: Annotated[dict[str, IntOrString], _quantities("Resource requests.")] = {}


_OWN = "the agent's own, if the policy sets neither limit nor request of a resource"


class AgentResources(ResourceRequirements, frozen=True, kw_only=True):
    """Resource limits and requests of an agent's container."""

    limits: Annotated[dict[str, IntOrString], _quantities("Resource limits.", _OWN)] = {}
    requests: Annotated[dict[str, IntOrString], _quantities("Resource requests.", _OWN)] = {}


class Image(PolicyStruct, frozen=True, kw_only=True):
    """The image of a container, and how it is pulled.

    Set repository, image and version, or only `image` with a full path, or nothing.
    """

    repository: Annotated[
        str,
        About("Registry and path in front of the image's name.", effect="part of the image's path"),
    ] = ""
    image: Annotated[
        str,
        About(
            "The image's name, or its full path if repository and version are not set.",
            effect="part of the image's path",
            unset="none: an image must be given",
            pattern=IMAGE_PATTERN,
        ),
    ] = ""
    version: Annotated[
        str,
        About("The tag, or a digest that begins with sha256:.", effect="part of the image's path"),
    ] = ""
    image_pull_policy: Annotated[
        str,
        About(
            "When the kubelet pulls the image.", effect="set on the container", unset="IfNotPresent"
        ),
    ] = ""
    image_pull_secrets: Annotated[
        tuple[str, ...],
        About("Names of the pull Secrets of the registry.", effect="set on the pod"),
    ] = ()


class ContainerSection(Image, frozen=True, kw_only=True):
    """A container whose fields take effect as written."""

    resources: Annotated[
        ResourceRequirements, About("Resource limits and requests of the container.")
    ] = ResourceRequirements()
    args: Annotated[
        tuple[str, ...],
        About("Arguments of the container.", effect="replace the default arguments"),
    ] = ()
    env: Annotated[tuple[EnvVar, ...], About("Environment variables.", effect=IN_CONTAINER)] = ()
    host_network: Annotated[
        bool, About("Whether the pod uses the host's network.", effect="set on the pod")
    ] = False


class AgentSection(PolicyStruct, frozen=True, kw_only=True):
    """An operand that one of Sluice's agents carries out."""

    repository: Annotated[
        str, About("Registry and path of the image.", no_effect_because=OUR_IMAGE)
    ] = ""
    image: Annotated[
        str, About("The image's name.", no_effect_because=OUR_IMAGE, pattern=IMAGE_PATTERN)
    ] = ""
    version: Annotated[str, About("The image's tag or digest.", no_effect_because=OUR_IMAGE)] = ""
    image_pull_policy: Annotated[
        str,
        About(
            "When the kubelet pulls the image.",
            effect="set on the agent's container",
            unset="IfNotPresent",
        ),
    ] = ""
    image_pull_secrets: Annotated[
        tuple[str, ...],
        About("Names of the pull Secrets of the registry.", effect="set on the agent's pod"),
    ] = ()
    resources: Annotated[
        AgentResources, About("Resource limits and requests of the container.")
    ] = AgentResources()
    args: Annotated[tuple[str, ...], About("Arguments.", no_effect_because=OUR_ARGUMENTS)] = ()
    env: Annotated[
        tuple[EnvVar, ...], About("Environment variables.", no_effect_because=OUR_SETTINGS)
    ] = ()
    host_network: Annotated[
        bool, About("Whether the pod uses the host's network.", no_effect_because=OUR_NETWORK)
    ] = False


def _probe(description: str, minimum: int | None = 1) -> About:
    return About(description, effect="set on the probe", minimum=minimum, bits=32)


class Probe(PolicyStruct, frozen=True, kw_only=True):
    """Timing of a container's probe. Unset fields keep Sluice's defaults."""

    initial_delay_seconds: Annotated[
        int | None, _probe("Seconds before the first probe.", minimum=None)
    ] = None
    timeout_seconds: Annotated[int | None, _probe("Seconds until a probe times out.")] = None
    period_seconds: Annotated[int | None, _probe("Seconds between two probes.")] = None
    success_threshold: Annotated[int | None, _probe("Consecutive successes required.")] = None
    failure_threshold: Annotated[int | None, _probe("Consecutive failures required.")] = None


class Toleration(PolicyStruct, frozen=True, kw_only=True):
    """A taint that pods tolerate."""

    key: Annotated[str, About("The taint's key; empty, with Exists, means all taints.")] = ""
    operator: Annotated[str, About("Exists or Equal.")] = ""
    value: Annotated[str, About("The taint's value.")] = ""
    effect: Annotated[str, About("The taint's effect; empty means all effects.")] = ""
    toleration_seconds: Annotated[
        int | None, About("How long a NoExecute taint is tolerated; unset means forever.")
    ] = None


class ConfigName(PolicyStruct, frozen=True, kw_only=True):
    """The name of a ConfigMap."""

    name: Annotated[str, About("The ConfigMap's name.", effect="mounted into the container")] = ""


class Condition(PolicyStruct, frozen=True, kw_only=True):
    """A Kubernetes status condition."""

    type: Annotated[str, About("The type of the condition.", required=True)] = ""
    status: Annotated[
        str, About("True, False or Unknown.", required=True, choices=("True", "False", "Unknown"))
    ] = ""
    observed_generation: Annotated[
        int | None, About("The generation of spec that the condition refers to.", minimum=0)
    ] = None
    last_transition_time: Annotated[str, About("When status last changed.", required=True)] = ""
    reason: Annotated[str, About("The reason in one word.", required=True)] = ""
    message: Annotated[str, About("The reason in a sentence.", required=True)] = ""


class Metadata(PolicyStruct, frozen=True, kw_only=True):
    """The metadata fields that decide precedence between objects."""

    name: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


Conditions = Annotated[
    tuple[Condition, ...], About("The conditions of the object.", keys=("type",))
]


ObservedGeneration = Annotated[
    int | None,
    About(
        "The generation of spec that the status is about: it follows once all who decide by spec"
        " have taken it up. -1 before the first.",
        minimum=-1,
    ),
]


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    """Shown only with `-o wide`."""


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


class ForeignKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of another project; Sluice only checks whether objects of it exist."""

    name: str
    group: str
    version: str
    plural: str


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    group: str
    version: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    description: str
    spec: type[msgspec.Struct]
    spec_description: str = "The wanted configuration."
    status: type[msgspec.Struct]
    status_subresource: bool = True
    """False: one write carries spec and status."""
    object_type: Any
    """The struct that objects of the kind are parsed into."""
    columns: tuple[PrinterColumn, ...] = (AGE,)
    rules: tuple[Rule, ...] = ()
    """Rules for the whole spec."""
    spec_required: bool = False
    spec_stored: bool = False
    """Whether the API server stores the defaults of spec in objects without a spec."""
    details: FieldDetails | None = None
    """What structs that are declared elsewhere do not say of their fields."""

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @cached_property
    def spec_shape(self) -> Shape:
        return shape_of(self.spec, self.details or {})

    @cached_property
    def status_shape(self) -> Shape:
        return shape_of(self.status, self.details or {})
