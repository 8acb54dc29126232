"""Parts that several kinds share: images, environment, probes, conditions."""

from typing import Annotated

from libs.policy.shapes import About, FreeForm, IntOrString, PolicyStruct

IMAGE_PATTERN = r"[a-zA-Z0-9\-]+"
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
OUR_IMAGE = "Sluice's own agent does this work, in the image of Sluice's release"
OUR_ARGUMENTS = "Sluice's own agent does this work, and has other arguments"
OUR_NETWORK = "Sluice's own agent does this work, and settles its network itself"
NO_OPERATOR = "there is no operator pod: Sluice's services come with their own manifests"
IN_CONTAINER = "in the environment of the container"
IN_AGENT = "in the environment of the agent that does this work"

Labels = dict[str, str]


class EnvVar(PolicyStruct, frozen=True, kw_only=True):
    """An environment variable with a literal value."""

    name: Annotated[str, About("The name of the variable.", required=True)] = ""
    value: Annotated[str, About("Its value.")] = ""


class ResourceRequirements(PolicyStruct, frozen=True, kw_only=True):
    """Resource limits and requests of a container."""

    limits: Annotated[
        dict[str, IntOrString],
        About("The most that it may use.", effect="as in the pod", pattern=QUANTITY_PATTERN),
    ] = {}
    requests: Annotated[
        dict[str, IntOrString],
        About("What it is promised.", effect="as in the pod", pattern=QUANTITY_PATTERN),
    ] = {}


class Image(PolicyStruct, frozen=True, kw_only=True):
    """The image of a container, and how it is pulled.

    Set repository, image and version, or only `image` with a full path, or nothing.
    """

    repository: Annotated[
        str,
        About("Registry and path before the image's name.", effect="part of the image's path"),
    ] = ""
    image: Annotated[
        str,
        About(
            "The image's name, or its whole path when repository and version are not set.",
            effect="part of the image's path",
            unset="none: what is run must be named",
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
            "When the kubelet pulls it.",
            effect="as in the pod",
            unset="IfNotPresent",
        ),
    ] = ""
    image_pull_secrets: Annotated[
        tuple[str, ...],
        About("Names of the Secrets for its registry.", effect="as in the pod"),
    ] = ()


class ContainerSection(Image, frozen=True, kw_only=True):
    """A container whose fields take effect as written."""

    resources: Annotated[ResourceRequirements, About("What its container may use.")] = (
        ResourceRequirements()
    )
    args: Annotated[
        tuple[str, ...], About("Arguments of its container.", effect="replace its arguments")
    ] = ()
    env: Annotated[tuple[EnvVar, ...], About("Environment variables.", effect=IN_CONTAINER)] = ()
    host_network: Annotated[
        bool, About("Whether it shares the host's network.", effect="as in the pod")
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
            effect="as in the agent's pod",
            unset="IfNotPresent",
        ),
    ] = ""
    image_pull_secrets: Annotated[
        tuple[str, ...],
        About("Names of the Secrets for its registry.", effect="as in the agent's pod"),
    ] = ()
    resources: Annotated[ResourceRequirements, About("What its container may use.")] = (
        ResourceRequirements()
    )
    args: Annotated[tuple[str, ...], About("Arguments.", no_effect_because=OUR_ARGUMENTS)] = ()
    env: Annotated[tuple[EnvVar, ...], About("Environment variables.", effect=IN_AGENT)] = ()
    host_network: Annotated[
        bool, About("Whether it shares the host's network.", no_effect_because=OUR_NETWORK)
    ] = False


class Probe(PolicyStruct, frozen=True, kw_only=True):
    """Timing of a container's probe. Unset fields keep Sluice's defaults."""

    initial_delay_seconds: Annotated[
        int | None,
        About("Seconds before the first time.", effect="as in the probe", bits=32),
    ] = None
    timeout_seconds: Annotated[
        int | None,
        About("Seconds until an answer is too late.", effect="as in the probe", minimum=1, bits=32),
    ] = None
    period_seconds: Annotated[
        int | None,
        About("Seconds between two times.", effect="as in the probe", minimum=1, bits=32),
    ] = None
    success_threshold: Annotated[
        int | None,
        About("Good answers in a row that count.", effect="as in the probe", minimum=1, bits=32),
    ] = None
    failure_threshold: Annotated[
        int | None,
        About("Bad answers in a row that count.", effect="as in the probe", minimum=1, bits=32),
    ] = None


class Toleration(PolicyStruct, frozen=True, kw_only=True):
    """A taint that pods tolerate."""

    key: Annotated[str, About("The taint's key; empty for all, with Exists.")] = ""
    operator: Annotated[str, About("Exists or Equal.")] = ""
    value: Annotated[str, About("The taint's value.")] = ""
    effect: Annotated[str, About("The taint's effect; empty for all.")] = ""
    toleration_seconds: Annotated[
        int | None, About("For how long, with NoExecute; unset for ever.")
    ] = None


class ConfigName(PolicyStruct, frozen=True, kw_only=True):
    """The name of a ConfigMap."""

    name: Annotated[str, About("The ConfigMap's name.", effect="mounted into the container")] = ""


class ServiceMonitor(PolicyStruct, frozen=True, kw_only=True):
    """Settings of a Prometheus ServiceMonitor."""

    enabled: Annotated[bool, About("Whether there is a ServiceMonitor.", absent=True)] = False
    interval: Annotated[str, About("Time between two scrapes.")] = ""
    honor_labels: Annotated[bool, About("Whether scraped labels win.")] = False
    additional_labels: Annotated[Labels, About("More labels of the ServiceMonitor.")] = {}
    relabelings: Annotated[tuple[FreeForm, ...], About("How labels are rewritten.")] = ()


class Condition(PolicyStruct, frozen=True, kw_only=True):
    """A Kubernetes status condition."""

    type: Annotated[str, About("What it is about.", required=True)] = ""
    status: Annotated[
        str, About("True, False or Unknown.", required=True, choices=("True", "False", "Unknown"))
    ] = ""
    observed_generation: Annotated[
        int | None, About("The generation of spec that it speaks of.", minimum=0)
    ] = None
    last_transition_time: Annotated[str, About("When status last changed.", required=True)] = ""
    reason: Annotated[str, About("Why, in one word.", required=True)] = ""
    message: Annotated[str, About("Why, in words.", required=True)] = ""


class Metadata(PolicyStruct, frozen=True, kw_only=True):
    """The metadata fields that decide precedence between objects."""

    name: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""

    @property
    def age(self) -> tuple[str, str]:
        """Return a sort key: oldest first, then by name."""
        return self.creation_timestamp, self.name

    @property
    def deleting(self) -> bool:
        return bool(self.deletion_timestamp)


Conditions = Annotated[tuple[Condition, ...], About("What is so, and why.", keys=("type",))]
