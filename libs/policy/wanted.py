"""The wanted driver and operands of a pool, in one form for all kinds of policy; defaults."""

from enum import StrEnum

from msgspec.structs import replace

from libs.policy.kinds.agents import WITH_WORKLOAD
from libs.policy.kinds.cluster_policy import ClusterPolicy, ClusterPolicySpec
from libs.policy.kinds.common import EnvVar, Image, Labels, Probe, ResourceRequirements, Toleration
from libs.policy.kinds.daemonsets import Daemonsets
from libs.policy.kinds.driver import DriverBase, Gdrcopy, Gds, KernelModuleType, Rdma
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.mig import WITH_REBOOT, MigStrategy
from libs.policy.kinds.nvidia_driver import NvidiaDriver, NvidiaDriverSpec
from libs.policy.shapes import FreeForm, PolicyStruct

HOST_ROOT = "/"
INSTALL_DIR = "/run/nvidia/driver"
KUBELET_ROOT = "/var/lib/kubelet"
DEFAULT_PULL_POLICY = "IfNotPresent"
DEFAULT_PRIORITY_CLASS = "system-node-critical"
DEFAULT_ARGUMENTS = ("init",)
STARTUP_PROBE = Probe(
    initial_delay_seconds=60, timeout_seconds=60, period_seconds=10, failure_threshold=120
)
"""Default startup probe of the driver: its fields replace those that a policy leaves out."""
LIVENESS_PROBE = Probe(
    initial_delay_seconds=30, timeout_seconds=10, period_seconds=30, failure_threshold=3
)
READINESS_PROBE = Probe(timeout_seconds=5, period_seconds=10, failure_threshold=3)


class InstallMethod(StrEnum):
    """How a driver is installed on a node."""

    CONTAINER = "container"
    """A DaemonSet runs the vendor's driver image."""
    HOST = "host"
    """The driver agent installs an artefact on the host."""
    PRE_INSTALLED = "pre-installed"
    """The driver exists already; it is validated and never changed."""


class PodOverrides(PolicyStruct, frozen=True, kw_only=True):
    """Pod fields that a policy adds to driver pods."""

    labels: Labels = {}
    annotations: Labels = {}
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    """Empty means Sluice's default."""
    security_context: FreeForm = {}


class WantedDriver(PolicyStruct, frozen=True, kw_only=True):
    """A wanted driver. The host method uses only `version` and `cuda`."""

    method: InstallMethod
    version: str = ""
    """Set with the host method only; otherwise the image determines the version."""
    cuda: str = ""
    """With the host method: the version of the CUDA libraries that come with the driver."""
    image: Image = Image()
    use_precompiled: bool = False
    kernel_module_type: KernelModuleType = KernelModuleType.AUTO
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    secret_env: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    host_network: bool = False
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    rdma: Rdma = Rdma()
    gds: Gds = Gds()
    gdrcopy: Gdrcopy = Gdrcopy()
    repo_config: str = ""
    cert_config: str = ""
    kernel_module_config: str = ""
    host_root: str = HOST_ROOT
    install_dir: str = INSTALL_DIR
    pods: PodOverrides = PodOverrides()


class Operands(PolicyStruct, frozen=True, kw_only=True):
    """Which operands run on a pool's nodes besides the driver, and how they show MIG devices."""

    toolkit: bool = True
    device_plugin: bool = True
    dra: bool = False
    """Pods have GPUs by claims, instead of from the device plugin."""
    claims_end: bool = False
    """Pods have GPUs by claims from before, without `dra`: their plugin stays until they end."""
    telemetry: bool = True
    node_status: bool = False
    """The validator's agent serves metrics of its node."""
    gpu_labels: bool = True
    plugin_configs: str = ""
    """The ConfigMap with the configurations of the device plugin, of which nodes choose by label;
    empty: there are none."""
    mig_manager: bool = True
    mig_strategy: MigStrategy = MigStrategy.NONE
    mig_config: str = ""
    """The ConfigMap with the MIG configurations; empty: those that come with Sluice."""
    mig_may_reboot: bool = False
    """A geometry that only a reboot of the node completes is accepted."""
    gds: bool = False
    """Some driver comes with GPUDirect Storage."""
    gdrcopy: bool = False
    """Some driver comes with GDRCopy."""
    artefacts: bool = False
    """The driver agent installs drivers on hosts."""
    validation_pod: bool = False
    """A pod that asks for a GPU has to confirm the validation of a node."""
    startup_taints: tuple[str, ...] = ()
    """The keys of the taints with which new nodes of some pool come."""


def driver_of_cluster(policy: ClusterPolicy) -> WantedDriver:
    """Return the driver that a ClusterPolicy describes."""
    driver, pods = policy.spec.driver, _overrides(policy.spec.daemonsets)
    if not driver.enabled:
        return WantedDriver(method=InstallMethod.PRE_INSTALLED, pods=pods)
    wanted = _container_driver(driver, policy.spec, policy)
    return replace(wanted, repo_config=driver.repo_config.config_map_name, pods=pods)


def driver_of_pool(policy: NvidiaDriver, cluster: ClusterPolicy | None) -> WantedDriver:
    """Return the driver that an NVIDIADriver describes; host paths come from the ClusterPolicy."""
    spec = policy.spec
    wanted = _container_driver(spec, spec, cluster)
    given = spec.args
    args = (*DEFAULT_ARGUMENTS, *given) if given and given[:1] != DEFAULT_ARGUMENTS else given
    return replace(wanted, args=args, repo_config=spec.repo_config.name, pods=_overrides(spec))


def host_driver(policy: GpuClusterPolicy) -> WantedDriver:
    """Return the driver that a GPUClusterPolicy describes."""
    driver = policy.spec.driver
    if not driver.enabled:
        return WantedDriver(method=InstallMethod.PRE_INSTALLED)
    cuda = policy.spec.cuda
    return WantedDriver(
        method=InstallMethod.HOST,
        version=driver.version,
        cuda=cuda.version if cuda.enabled else "",
    )


def version_of(driver: WantedDriver) -> str:
    """Return the version that a policy names; empty where its image's path has it."""
    return driver.version or driver.image.version


def with_version(driver: WantedDriver, version: str) -> WantedDriver:
    """Return the driver with another version."""
    if driver.version:
        return replace(driver, version=version)
    return replace(driver, image=replace(driver.image, version=version))


def operands_of(cluster: ClusterPolicy | GpuClusterPolicy | None) -> Operands:
    """Return the operands that the cluster-wide policy enables; all if there is no such policy."""
    if isinstance(cluster, ClusterPolicy):
        spec = cluster.spec
        return Operands(
            toolkit=spec.toolkit.enabled and spec.cdi.enabled,
            device_plugin=spec.device_plugin.enabled,
            dra=spec.dra.enabled,
            plugin_configs=spec.device_plugin.config.name if spec.device_plugin.enabled else "",
            telemetry=spec.dcgm_exporter.enabled,
            node_status=spec.node_status_exporter.enabled,
            gpu_labels=spec.gfd.enabled,
            mig_manager=spec.mig_manager.enabled,
            mig_strategy=spec.mig.strategy or MigStrategy.NONE,
            mig_config=spec.mig_manager.config.name,
            mig_may_reboot=any(
                (each.name, each.value) == (WITH_REBOOT, "true") for each in spec.mig_manager.env
            ),
            validation_pod=spec.device_plugin.enabled
            and any(
                (each.name, each.value) == (WITH_WORKLOAD, "true")
                for each in spec.validator.plugin.env
            ),
        )
    if cluster is not None:
        return Operands(
            device_plugin=cluster.spec.device_plugin.enabled,
            dra=cluster.spec.dra.enabled,
            mig_manager=cluster.spec.mig_manager.enabled,
            artefacts=cluster.spec.driver.enabled,
        )
    return Operands()


def _overrides(section: Daemonsets | NvidiaDriverSpec) -> PodOverrides:
    return PodOverrides(
        labels=section.labels,
        annotations=section.annotations,
        tolerations=section.tolerations,
        priority_class_name=section.priority_class_name,
        security_context=section.pod_security_context,
    )


def _container_driver(
    driver: DriverBase, parts: ClusterPolicySpec | NvidiaDriverSpec, cluster: ClusterPolicy | None
) -> WantedDriver:
    """Return a driver in a container, without the fields that differ between kinds of policy."""
    return WantedDriver(
        method=InstallMethod.CONTAINER,
        image=Image(**{name: getattr(driver, name) for name in Image.__struct_fields__}),
        use_precompiled=driver.use_precompiled,
        kernel_module_type=driver.kernel_module_type,
        args=driver.args,
        env=driver.env,
        secret_env=driver.secret_env,
        resources=driver.resources,
        host_network=driver.host_network,
        startup_probe=driver.startup_probe,
        liveness_probe=driver.liveness_probe,
        readiness_probe=driver.readiness_probe,
        rdma=driver.rdma,
        gds=parts.gds,
        gdrcopy=parts.gdrcopy,
        cert_config=driver.cert_config.name,
        kernel_module_config=driver.kernel_module_config.name,
        host_root=host_root(cluster) if cluster else HOST_ROOT,
        install_dir=install_dir(cluster) if cluster else INSTALL_DIR,
    )


def host_root(policy: ClusterPolicy) -> str:
    """Return the host's root directory, which containers mount."""
    return normalize_directory(policy.spec.host_paths.root_fs, HOST_ROOT)


def install_dir(policy: ClusterPolicy) -> str:
    """Return the root of the installed driver on the host."""
    return normalize_directory(policy.spec.host_paths.driver_install_dir, INSTALL_DIR)


def kubelet_root(policy: ClusterPolicy) -> str:
    """Return the kubelet's directory on the host."""
    return normalize_directory(policy.spec.host_paths.kubelet_root_dir, KUBELET_ROOT)


def normalize_directory(directory: str, default: str) -> str:
    """Return a directory without trailing slashes, or the default if it is empty."""
    return (directory.rstrip("/") or "/") if directory else default
