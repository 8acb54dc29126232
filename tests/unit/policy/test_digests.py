"""Which fields change which digests; digests are stable across releases."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.policy.artefacts import parse_artefacts
from libs.policy.digest import (
    DIGEST_LENGTH,
    DriverIdentity,
    driver_identity,
    driver_label,
    install_digest,
    target_digest,
)
from libs.policy.kinds.common import EnvVar, Image, Probe, ResourceRequirements, Toleration
from libs.policy.kinds.driver import Gdrcopy, Gds, KernelModuleType, Rdma
from libs.policy.normal_form import normalize
from libs.policy.render.driver import render_driver as rendered
from libs.policy.render.rendered import RenderedObject
from libs.policy.shapes import JsonType, Shape, shape_of
from libs.policy.variants import Variant
from libs.policy.wanted import (
    LIVENESS_PROBE,
    READINESS_PROBE,
    STARTUP_PROBE,
    InstallMethod,
    PodOverrides,
    WantedDriver,
)
from tests.unit.policy.situations import FILES, SETTINGS, Situation, cluster_policy, without_digests

UBUNTU = Variant(system="ubuntu", version="22.04")
ALL = WantedDriver(
    method=InstallMethod.CONTAINER,
    image=Image(repository="r.example/nvidia", image="driver", version="580.95.05"),
    rdma=Rdma(enabled=True),
    gds=Gds(enabled=True, image="r.example/nvidia-fs:2.26"),
    gdrcopy=Gdrcopy(enabled=True, image="r.example/gdrdrv:2.5"),
)
ENV = (EnvVar(name="A", value="1"),)
RESOURCES = ResourceRequirements(limits={"cpu": 2})
PROBE = Probe(period_seconds=7)

Change = tuple[str, Any]
BOTH, POD_ALONE, NONE = ("target", "install"), ("target",), ()

TABLE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "method": (InstallMethod.PRE_INSTALLED, BOTH),
    "version": ("580", NONE),
    "cuda": ("13.0", NONE),
    "image.repository": ("other.example", BOTH),
    "image.image": ("other", BOTH),
    "image.version": ("590", BOTH),
    "image.imagePullPolicy": ("Always", POD_ALONE),
    "image.imagePullSecrets": (("s",), POD_ALONE),
    "usePrecompiled": (True, BOTH),
    "kernelModuleType": (KernelModuleType.OPEN, BOTH),
    "args": (("a",), BOTH),
    "env": (ENV, BOTH),
    "secretEnv": ("s", BOTH),
    "resources.limits": ({"cpu": 2}, POD_ALONE),
    "resources.requests": ({"cpu": 2}, POD_ALONE),
    "hostNetwork": (True, POD_ALONE),
    "startupProbe": (PROBE, POD_ALONE),
    "livenessProbe": (PROBE, POD_ALONE),
    "readinessProbe": (PROBE, POD_ALONE),
    "rdma.enabled": (False, BOTH),
    "rdma.useHostMofed": (True, BOTH),
    **{
        f"{part}.{field}": change
        for part in ("gds", "gdrcopy")
        for field, change in {
            "enabled": (False, BOTH),
            "repository": ("other.example", BOTH),
            "image": ("r.example/other:1", BOTH),
            "version": ("9", BOTH),
            "imagePullPolicy": ("Always", POD_ALONE),
            "imagePullSecrets": (("s",), POD_ALONE),
            "resources.limits": ({"cpu": 2}, POD_ALONE),
            "resources.requests": ({"cpu": 2}, POD_ALONE),
            "args": (("a",), BOTH),
            "env": (ENV, BOTH),
            "hostNetwork": (True, POD_ALONE),
        }.items()
    },
    "repoConfig": ("apt-sources", BOTH),
    "certConfig": ("registry-ca", BOTH),
    "kernelModuleConfig": ("kernel-module-params", BOTH),
    "hostRoot": ("/host", BOTH),
    "installDir": ("/run/driver", BOTH),
    "pods.labels": ({"a": "b"}, POD_ALONE),
    "pods.annotations": ({"a": "b"}, POD_ALONE),
    "pods.tolerations": ((Toleration(key="a"),), POD_ALONE),
    "pods.priorityClassName": ("p", POD_ALONE),
    "pods.securityContext": ({"fsGroup": 7}, POD_ALONE),
}
"""Another value of each field, and the digests that it changes."""


def changed(driver: Any, path: str, value: Any) -> Any:
    name, _, remainder = path.partition(".")
    names = {field.encode_name: field.name for field in msgspec.structs.fields(driver)}
    inner_value = changed(getattr(driver, names[name]), remainder, value) if remainder else value
    return replace(driver, **{names[name]: inner_value})


def leaves(shape: Shape, path: str = "") -> Iterator[str]:
    for field in shape.fields:
        field_path = f"{path}.{field.name}".lstrip(".")
        if field.shape.type is JsonType.OBJECT and not field_path.endswith("Probe"):
            yield from leaves(field.shape, field_path)
        else:
            yield field_path


@pytest.mark.parametrize("path", TABLE)
def test_a_field_changes_the_expected_digests(path: str) -> None:
    value, expected = TABLE[path]
    other = changed(ALL, path, value)
    changes: list[str] = []
    if target_digest(other) != target_digest(ALL):
        changes.append("target")
    if install_digest(other, UBUNTU) != install_digest(ALL, UBUNTU):
        changes.append("install")
    assert tuple(changes) == expected


def test_the_table_lists_every_field() -> None:
    assert set(leaves(shape_of(WantedDriver, {}))) == set(TABLE)


HOST = WantedDriver(method=InstallMethod.HOST, version="580.95.05")
WITH_CUDA = WantedDriver(method=InstallMethod.HOST, version="580", cuda="13")
PRE_INSTALLED = WantedDriver(method=InstallMethod.PRE_INSTALLED)


@pytest.mark.parametrize(
    ("driver", "path", "value", "expected"),
    [
        (HOST, "version", "590", BOTH),
        (HOST, "cuda", "13.0", BOTH),
        (HOST, "env", ENV, NONE),
        (HOST, "image.image", "x", NONE),
        (PRE_INSTALLED, "version", "590", NONE),
        (PRE_INSTALLED, "hostRoot", "/host", NONE),
    ],
)
def test_a_field_of_another_install_method_changes_no_digest(
    driver: WantedDriver, path: str, value: Any, expected: tuple[str, ...]
) -> None:
    other = changed(driver, path, value)
    same = (
        target_digest(other) == target_digest(driver),
        install_digest(other, UBUNTU) == install_digest(driver, UBUNTU),
    )
    assert same == ("target" not in expected, "install" not in expected)


PLAIN = WantedDriver(method=InstallMethod.CONTAINER, image=ALL.image)


def plain(**changes: Any) -> WantedDriver:
    """Return a driver with these values by path, with `__` for a dot."""
    driver = PLAIN
    for path, value in changes.items():
        driver = changed(driver, path.replace("__", "."), value)
    return driver


def env(*pairs: tuple[str, str]) -> tuple[EnvVar, ...]:
    return tuple(EnvVar(name=name, value=value) for name, value in pairs)


OPEN = ("KERNEL_MODULE_TYPE", "open")
RDMA_ENV = env(("GPU_DIRECT_RDMA_ENABLED", "true"))
GPU_TAINT = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
WITH_RDMA = plain(rdma=Rdma(enabled=True))
BOTH_FIELDS = {"fsGroup": 1, "seccompProfile": {"a": 1, "b": 2}}
BOTH_FIELDS_REORDERED = {"seccompProfile": {"b": 2, "a": 1}, "fsGroup": 1}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PLAIN, plain(image=Image(image="r.example/nvidia/driver:580.95.05"))),
        (PLAIN, plain(image__imagePullPolicy="IfNotPresent")),
        (PLAIN, plain(gds__version="2.26")),
        (PLAIN, plain(gdrcopy__env=ENV)),
        (PLAIN, plain(rdma__useHostMofed=True)),
        (PLAIN, plain(startupProbe=Probe())),
        (PLAIN, plain(startupProbe=changed(STARTUP_PROBE, "successThreshold", 1))),
        (plain(livenessProbe=Probe(success_threshold=1)), plain(livenessProbe=LIVENESS_PROBE)),
        (PLAIN, plain(args=("init",))),
        (PLAIN, plain(pods__priorityClassName="system-node-critical")),
        (PLAIN, plain(env=env(("DRIVER_CONFIG_DIGEST", "x")))),
        (PLAIN, plain(pods__labels={"app": "x", "sluice.dev/driver": "y"})),
        (PLAIN, plain(pods__annotations={"sluice.dev/driver": "y"})),
        (PLAIN, plain(pods__tolerations=(GPU_TAINT,))),
        (plain(kernelModuleType=KernelModuleType.OPEN), plain(env=env(OPEN))),
        (
            plain(env=env(OPEN), kernelModuleType=KernelModuleType.OPEN),
            plain(env=env(OPEN), kernelModuleType=KernelModuleType.PROPRIETARY),
        ),
        (WITH_RDMA, changed(WITH_RDMA, "env", RDMA_ENV)),
        (plain(resources__limits={"cpu": 2}), plain(resources__limits={"cpu": "2"})),
        (
            plain(env=env(("A", "1"), ("B", "2"))),
            plain(env=env(("B", "2"), ("A", "0"), ("A", "1"))),
        ),
        (
            plain(pods__securityContext=BOTH_FIELDS),
            plain(pods__securityContext=BOTH_FIELDS_REORDERED),
        ),
    ],
)
def test_equivalent_drivers_have_equal_digests(first: WantedDriver, second: WantedDriver) -> None:
    assert driver_identity("u", first, UBUNTU) == driver_identity("u", second, UBUNTU)


REFERENCES = env(OPEN, ("A", "$(KERNEL_MODULE_TYPE)"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PLAIN, plain(livenessProbe=LIVENESS_PROBE)),
        (PLAIN, plain(readinessProbe=Probe(success_threshold=1))),
        (PLAIN, plain(pods__annotations={"app": "x"})),
        (plain(env=REFERENCES), plain(env=REFERENCES[::-1])),
    ],
)
def test_different_drivers_have_different_targets(
    first: WantedDriver, second: WantedDriver
) -> None:
    assert target_digest(first) != target_digest(second)
    assert template(first) != template(second)


def test_a_label_depends_on_pool_target_and_variant() -> None:
    variants = [
        UBUNTU,
        Variant(system="ubuntu", version="24.04"),
        Variant(system="ubuntu", version="22.04", kernel="5.15.0-139-generic"),
        Variant(system="ubuntu", version="22.04", architecture="arm64"),
    ]
    labels = {
        driver_label(uid, target, variant)
        for uid in "ab"
        for target in "cd"
        for variant in variants
    }
    assert len(labels) == 16
    assert all(len(label) == DIGEST_LENGTH and label.isalnum() for label in labels)


def test_an_install_digest_depends_on_the_variant_but_not_on_the_pool() -> None:
    other = Variant(system="ubuntu", version="24.04")
    assert install_digest(PLAIN, UBUNTU) != install_digest(PLAIN, other)
    first, second = driver_identity("a", PLAIN, UBUNTU), driver_identity("b", PLAIN, UBUNTU)
    assert (first.target, first.install_digest) == (second.target, second.install_digest)
    assert first.label != second.label


def test_the_files_that_are_installed_on_hosts_are_part_of_the_identity() -> None:
    ubuntu = Variant(system="ubuntu", version="22.04", architecture="amd64")

    def identity(**digits: str) -> DriverIdentity:
        data = {
            f"{key.replace('_', '-')}-ubuntu22.04-amd64": f"sha256:{digit * 64} run a.run"
            for key, digit in digits.items()
        }
        return driver_identity("p", WITH_CUDA, ubuntu, parse_artefacts(data))

    named = identity(driver_580="a", cuda_13="b")
    for other in (
        identity(driver_580="c", cuda_13="b"),
        identity(driver_580="a", cuda_13="c"),
    ):
        assert other.target != named.target
        assert other.label != named.label
        assert other.install_digest != named.install_digest
    assert identity(driver_580="a", cuda_13="b", driver_590="c", cuda_12="d") == named
    assert identity() == driver_identity("p", WITH_CUDA, ubuntu)
    artefacts = parse_artefacts({"driver-580-ubuntu22.04-amd64": f"sha256:{'a' * 64} run a.run"})
    for driver in (PLAIN, PRE_INSTALLED):
        assert driver_identity("p", driver, UBUNTU, artefacts) == driver_identity(
            "p", driver, UBUNTU
        )


@pytest.mark.parametrize(
    ("driver", "variant", "digests"),
    [
        (
            PLAIN,
            UBUNTU,
            (
                "8a32b609e9955220eaeb8a1d92bddf8e",
                "9287c7d33a88c235b27a87c9cb48f3b9",
                "e311dab33795ea92efc52e6e318fe8b3",
            ),
        ),
        (
            ALL,
            UBUNTU,
            (
                "66cf6aa02beee0aac7ae5c1ed6e58c81",
                "e8de517392ab7bf425a90ed572ef6f8c",
                "1dbdfcc9e4dc89a1503d9d188d07b430",
            ),
        ),
        (
            HOST,
            Variant(system="ubuntu", version="22.04", architecture="amd64"),
            (
                "f9d6df315b4448f2a7972dfd0d2bc1be",
                "a20d0a1f44e25c9543b89b86986a733d",
                "622dd8aec7de71bc90bc38dce3e99b70",
            ),
        ),
        (
            PRE_INSTALLED,
            Variant(),
            (
                "6bc3c2014ed7a6dff8c62e3586305ca7",
                "2888e1db90959d7a673f9a368bce6df9",
                "a37126b1001327742f490538d7206c8c",
            ),
        ),
    ],
    ids=["container", "all parts", "host", "pre-installed"],
)
def test_digests_never_change_between_releases(
    driver: WantedDriver, variant: Variant, digests: tuple[str, str, str]
) -> None:
    """A change of a digest restarts the drivers of every fleet: fix the code, not the values."""
    identity = driver_identity("bfac7359-6033-45ce-88d6-53db0078526e", driver, variant)
    assert (identity.target, identity.label, identity.install_digest) == digests


texts = st.sampled_from(["", "a", "b"])
NUMBERS = ("initial_delay_seconds", "timeout_seconds", "period_seconds", "failure_threshold")
NAMES = ["", "a", "KERNEL_MODULE_TYPE", "GDS_ENABLED", "GPU_DIRECT_RDMA_ENABLED"]
VALUES = ["true", "open", "auto", "1", "$(a)"]
envs = st.lists(
    st.builds(EnvVar, name=st.sampled_from(NAMES), value=st.sampled_from(VALUES)), max_size=3
).map(tuple)
maps = st.dictionaries(st.sampled_from(["a", "b", "app", "sluice.dev/x"]), texts, max_size=3)
amounts = st.dictionaries(st.just("cpu"), st.sampled_from([1, 2, "1", "2"]), max_size=1)
resources = st.builds(ResourceRequirements, limits=amounts, requests=amounts)
images = st.sampled_from(
    [Image(image="r/d:1"), Image(repository="r", image="d", version="1"), Image(image="r/d:2")]
)
secrets = st.lists(texts, max_size=2).map(tuple)
pull_policies = st.sampled_from(["", "IfNotPresent", "Always"])
tolerations = st.builds(
    Toleration,
    key=st.sampled_from(["a", "nvidia.com/gpu"]),
    operator=st.sampled_from(["", "Equal", "Exists"]),
    effect=st.sampled_from(["", "NoSchedule"]),
)
directories = st.sampled_from(["/a", "/b"])


@st.composite
def pulled_images(draw: st.DrawFn) -> Image:
    pull = {"image_pull_policy": draw(pull_policies), "image_pull_secrets": draw(secrets)}
    return replace(draw(images), **pull)


def probes(defaults: Probe) -> st.SearchStrategy[Probe | None]:
    """Return None, or a probe with some fields set, some of them to the default of Sluice."""
    fields = {
        name: st.sampled_from(sorted({1, getattr(defaults, name) or 1})) | st.none()
        for name in NUMBERS
    }
    return st.none() | st.builds(Probe, success_threshold=st.sampled_from([None, 1]), **fields)


def parts(kind: type[Gds] | type[Gdrcopy]) -> st.SearchStrategy[Any]:
    """Return a GDS or GDRCopy container, enabled or not."""
    return st.builds(
        kind,
        enabled=st.booleans(),
        image=st.sampled_from(["r/fs:1", "r/fs:2"]),
        image_pull_policy=pull_policies,
        image_pull_secrets=secrets,
        args=secrets,
        env=envs,
        resources=resources,
        host_network=st.booleans(),
    )


drivers = st.builds(
    WantedDriver,
    method=st.just(InstallMethod.CONTAINER),
    image=pulled_images(),
    kernel_module_type=st.sampled_from(KernelModuleType),
    args=st.sampled_from([(), ("init",), ("a",)]),
    env=envs,
    secret_env=texts,
    resources=resources,
    host_network=st.booleans(),
    startup_probe=probes(STARTUP_PROBE),
    liveness_probe=probes(LIVENESS_PROBE),
    readiness_probe=probes(READINESS_PROBE),
    rdma=st.builds(Rdma, enabled=st.booleans(), use_host_mofed=st.booleans()),
    gds=parts(Gds),
    gdrcopy=parts(Gdrcopy),
    repo_config=st.sampled_from(["", "apt-sources"]),
    cert_config=st.sampled_from(["", "registry-ca"]),
    kernel_module_config=st.sampled_from(["", "kernel-module-params"]),
    host_root=directories,
    install_dir=directories,
    pods=st.builds(
        PodOverrides,
        labels=maps,
        annotations=maps,
        tolerations=st.lists(tolerations, max_size=2).map(tuple),
        priority_class_name=st.sampled_from(["", "system-node-critical", "p"]),
        security_context=st.sampled_from([{}, {"fsGroup": 1}]),
    ),
)


@st.composite
def similar_drivers(draw: st.DrawFn) -> tuple[WantedDriver, WantedDriver]:
    """Return two drivers that differ in few fields or none: independent drivers rarely match."""
    first, second = draw(drivers), draw(drivers)
    names = [field.name for field in msgspec.structs.fields(WantedDriver)]
    new = {
        name: getattr(second, name) for name in draw(st.sets(st.sampled_from(names), max_size=2))
    }
    return first, replace(first, **new)


POOL = Situation([cluster_policy()]).pools().pools[0]


def template(driver: WantedDriver) -> Any:
    """Return a driver's pod without its digests."""
    pool = replace(POOL, driver=driver)
    daemon_set = rendered(pool, UBUNTU, SETTINGS, FILES)
    assert isinstance(daemon_set, RenderedObject)
    return without_digests(daemon_set.object)


@given(similar_drivers())
def test_targets_are_equal_exactly_if_the_pods_are_equal(
    pair: tuple[WantedDriver, WantedDriver],
) -> None:
    first, second = pair
    assert (target_digest(first) == target_digest(second)) == (template(first) == template(second))


@given(drivers)
def test_normalizing_is_idempotent(driver: WantedDriver) -> None:
    assert normalize(normalize(driver)) == normalize(driver)
    assert target_digest(normalize(driver)) == target_digest(driver)
    assert install_digest(normalize(driver), UBUNTU) == install_digest(driver, UBUNTU)


@given(drivers, st.randoms())
def test_the_order_of_keys_does_not_matter(driver: WantedDriver, source: random.Random) -> None:
    keys = list(driver.pods.labels)
    source.shuffle(keys)
    labels = {key: driver.pods.labels[key] for key in keys}
    assert target_digest(changed(driver, "pods.labels", labels)) == target_digest(driver)
