"""The step `toolkit`: a container that asks for a GPU gets it, and starts."""

from msgspec.structs import replace

from libs.contracts.words import first_few
from libs.host.cdi import published
from libs.host.cdi.spec import common_digest, files
from libs.host.tree import Tree
from services.validator.node.probe import TOOLKIT_STEP, Probe


def check_toolkit(tree: Tree, probe: Probe) -> Probe:
    """Compare the machine's CDI specs with the GPUs that work, and with the machine's files."""
    spec = published.gpu_spec(tree)
    if spec is None:
        return probe.at_step(
            TOOLKIT_STEP,
            problem=f"containers can have no GPU, because {published.GPU_FILE} is missing, broken,"
            " or contradicted by another file beside it: see the log of the driver agent",
        )
    named = {each.name for each in spec.devices}
    if unnamed := [uuid for uuid in probe.devices if uuid not in named]:
        return probe.at_step(
            TOOLKIT_STEP,
            problem=f"containers cannot have {first_few(unnamed, 1)}, which {published.GPU_FILE}"
            " does not name: see the log of the driver agent",
        )
    if absent := sorted(path for path in files(spec) if not tree.exists(path)):
        return probe.at_step(
            TOOLKIT_STEP,
            problem=f"containers with a GPU do not start, because {first_few(absent, 1)} of"
            f" {published.GPU_FILE} is not there: see the log of the driver agent",
        )
    found = f"containers can have {len(probe.devices)} GPUs or MIG devices"
    return replace(probe.at_step(TOOLKIT_STEP, found=found), runtime_digest=common_digest(spec))
