"""Validation across the fields of one object."""

from typing import Any

import pytest

from libs.policy.driver_checks import misnamed_version
from libs.policy.findings import Severity
from libs.policy.manifests import parse_manifest
from tests.unit.policy.fields import minimal_object, put

IMAGE = {"repository": "r.example", "image": "driver", "version": "1"}


def errors(kind: str, **spec: Any) -> list[tuple[str, str]]:
    obj = minimal_object(kind)
    for path, value in spec.items():
        put(obj["spec"], path.replace("__", "."), value)
    return [(found.field, found.problem) for found in parse_manifest(kind, obj).errors]


@pytest.mark.parametrize(
    "given", [("repository",), ("version",), ("repository", "image"), ("image", "version")]
)
def test_an_image_is_complete_or_a_path_or_unset(given: tuple[str, ...]) -> None:
    for kind, path in (
        ("ClusterPolicy", "driver"),
        ("ClusterPolicy", "gds"),
        ("NVIDIADriver", "gds"),
    ):
        image = {name: IMAGE[name] for name in given}
        found = errors(kind, **{path: {**image, "enabled": True}})
        missing = next(name for name in IMAGE if name not in given)
        assert [field for field, _ in found] == [f"spec.{path}.{missing}"]
        assert (
            "invalid image specification: repository, image and version must all be set"
            in (found[0][1])
        )
        assert errors(kind, **{path: {**IMAGE, "enabled": True}}) == []
        assert errors(kind, **{path: {"image": "r.example/driver:1", "enabled": True}}) == []
        assert errors(kind, **{path: {"enabled": True}}) == []


@pytest.mark.parametrize("version", ["5" * 129, "580/95", "580 95", "-580", "sha256:abc", "ü"])
def test_a_version_that_can_be_no_tag_is_named(version: str) -> None:
    for kind, path in (("ClusterPolicy", "driver"), ("NVIDIADriver", "gdrcopy")):
        image = {**IMAGE, "version": version, "enabled": True}
        ((field, problem),) = errors(kind, **{path: image})
        assert field == f"spec.{path}.version"
        assert problem.startswith("cannot be the tag")
    assert ("129 characters, of at most 128" in problem) is (len(version) > 128)


@pytest.mark.parametrize(
    "image", [{**IMAGE, "repository": "R.example/Nvidia"}, {"image": "r.example/driver:1 "}]
)
def test_an_image_that_no_registry_can_have_is_named(image: dict[str, str]) -> None:
    ((field, problem),) = errors("ClusterPolicy", driver=image)
    assert field == f"spec.driver.{'repository' if 'repository' in image else 'image'}"
    assert problem.endswith("which cannot be the name of an image")


def test_images_of_disabled_parts_are_not_checked() -> None:
    assert errors("ClusterPolicy", driver={"enabled": False, "version": "1"}) == []
    assert errors("ClusterPolicy", driver={"useNvidiaDriverCRD": True, "version": "1"}) == []
    assert errors("ClusterPolicy", gdrcopy={"version": "1"}) == []


@pytest.mark.parametrize("part", ["gds", "gdrcopy"])
def test_precompiled_drivers_exclude_gds_and_gdrcopy(part: str) -> None:
    expected = [(f"spec.{part}.enabled", "cannot be combined with precompiled drivers")]
    enabled = {part: {"enabled": True}}
    assert errors("NVIDIADriver", usePrecompiled=True, **enabled) == expected
    assert errors("ClusterPolicy", driver={"usePrecompiled": True}, **enabled) == expected


@pytest.mark.parametrize(
    ("version", "module", "refused"),
    [
        ("v2.17.5", "auto", True),
        ("2.17.5-ubuntu22.04", "proprietary", True),
        ("v3.0", "auto", True),
        (f"sha256:{'a' * 64}", "auto", True),
        ("v2.17.4", "auto", False),
        ("v2.16.99", "auto", False),
        ("2.17", "auto", False),
        ("v2.17.5", "open", False),
        ("latest", "auto", False),
    ],
)
def test_newer_gds_requires_open_modules(version: str, module: str, refused: bool) -> None:
    gds = {**IMAGE, "version": version, "enabled": True}
    found = errors("NVIDIADriver", gds=gds, kernelModuleType=module)
    assert [field for field, _ in found] == (["spec.gds.version"] if refused else [])


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        *((each, False) for each in ("auto", "open", "proprietary", "", "$(MODULES)")),
        *((each, True) for each in ("free", "Open", "kernel-open")),
    ],
)
def test_a_variable_with_a_module_type_that_does_not_exist_is_refused(
    value: str, *, refused: bool
) -> None:
    env = [{"name": "KERNEL_MODULE_TYPE", "value": each} for each in ("free", value)]
    found = errors("NVIDIADriver", env=env)
    assert [field for field, _ in found] == (["spec.env[KERNEL_MODULE_TYPE]"] if refused else [])
    in_cluster = errors("ClusterPolicy", driver={"env": env})
    assert [field for field, _ in in_cluster] == (
        ["spec.driver.env[KERNEL_MODULE_TYPE]"] if refused else []
    )


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ("cdi.enabled", "the NRI Plugin cannot be enabled when CDI is disabled"),
        (
            "toolkit.enabled",
            "the NRI Plugin cannot be enabled when the Container Toolkit is disabled",
        ),
    ],
)
def test_the_nri_plugin_needs_cdi_and_the_toolkit(without: str, words: str) -> None:
    obj = minimal_object("ClusterPolicy")
    put(obj["spec"], "cdi.nriPluginEnabled", True)
    put(obj["spec"], without, False)
    (found,) = parse_manifest("ClusterPolicy", obj).errors
    assert (found.field, found.quoted) == ("spec.cdi.nriPluginEnabled", words)
    assert found.for_scripts.startswith(f"{words}; spec.cdi.nriPluginEnabled (true) ")
    assert f"set spec.{without} to true" in str(found)


@pytest.mark.parametrize("kind", ["ClusterPolicy", "GPUClusterPolicy"])
def test_claims_and_the_device_plugin_exclude_each_other(kind: str) -> None:
    obj = minimal_object(kind)
    put(obj["spec"], "dra.enabled", True)
    (found,) = parse_manifest(kind, obj).errors
    assert found.field == "spec.dra.enabled"
    assert "would give the same GPU to two pods" in str(found)
    assert "set spec.devicePlugin.enabled to false, or this to false" in str(found)
    put(obj["spec"], "devicePlugin.enabled", False)
    assert parse_manifest(kind, obj).errors == ()


@pytest.mark.parametrize("without", ["cdi.enabled", "toolkit.enabled"])
def test_claims_need_cdi_and_the_toolkit(without: str) -> None:
    obj = minimal_object("ClusterPolicy")
    for path in ("devicePlugin.enabled", without):
        put(obj["spec"], path, False)
    put(obj["spec"], "dra.enabled", True)
    (found,) = parse_manifest("ClusterPolicy", obj).errors
    assert (found.field, found.remedy) == (
        "spec.dra.enabled",
        "set both to true, or this to false",
    )


@pytest.mark.parametrize("kind", ["vgpu", "vgpu-host-manager"])
def test_vgpu_drivers_are_errors(kind: str) -> None:
    assert errors("NVIDIADriver", driverType=kind) == [
        ("spec.driverType", "asks for vGPU, which Sluice does not support")
    ]


def test_a_default_driver_has_no_node_selector() -> None:
    assert errors("NVIDIADriver", default=True, nodeSelector={"a": "b"}) == [
        ("spec.nodeSelector", "is set on a default driver; the default cannot use nodeSelector")
    ]


def test_a_host_driver_requires_a_version() -> None:
    assert [field for field, _ in errors("GPUClusterPolicy", driver={})] == ["spec.driver.version"]
    assert errors("GPUClusterPolicy", driver={"enabled": False}) == []


@pytest.mark.parametrize(
    ("version", "fits"),
    [("13.0", True), ("12", True), ("12.9.1", True), ("v13", False), ("13.x", False), ("", True)],
)
def test_a_cuda_version_is_numbers_and_dots_unless_cuda_is_off(version: str, fits: bool) -> None:
    at = "spec.cuda.version"
    found = [field for field, _ in errors("GPUClusterPolicy", cuda={"version": version})]
    assert found == ([] if fits else [at])
    assert errors("GPUClusterPolicy", cuda={"version": version, "enabled": False}) == []


@pytest.mark.parametrize(
    "field",
    [
        "hostPaths.rootFS",
        "hostPaths.driverInstallDir",
        "hostPaths.kubeletRootDir",
        "toolkit.installDir",
    ],
)
@pytest.mark.parametrize(
    ("directory", "fits"),
    [("/opt/a", True), ("/", True), ("", True), ("opt/a", False), ("/a/../b", False), (".", False)],
)
def test_host_paths_are_absolute(field: str, directory: str, fits: bool) -> None:
    found = errors("ClusterPolicy", **{field.replace(".", "__"): directory})
    assert [at for at, _ in found] == ([] if fits else [f"spec.{field}"])


@pytest.mark.parametrize(
    ("kind", "path"), [("ClusterPolicy", "driver.upgradePolicy"), ("NVIDIADriver", "upgradePolicy")]
)
@pytest.mark.parametrize("field", ["waitForCompletion", "drain"])
def test_pod_selectors_are_validated(kind: str, path: str, field: str) -> None:
    path = f"{path}.{field}.podSelector"
    assert errors(kind, **{path.replace(".", "__"): "a in (b)"}) == []
    found = errors(kind, **{path.replace(".", "__"): "a in b"})
    assert [name for name, _ in found] == [f"spec.{path}"]


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe"])
def test_an_invalid_success_threshold_of_a_probe_is_an_error(probe: str) -> None:
    for kind, at in (("ClusterPolicy", "driver__"), ("NVIDIADriver", "")):
        wanted = f"spec.{at.replace('__', '.')}{probe}.successThreshold"
        ((field, problem),) = errors(kind, **{f"{at}{probe}__successThreshold": 2})
        assert field == wanted
        assert problem.startswith("is not 1")
        assert errors(kind, **{f"{at}{probe}__successThreshold": 1}) == []
        assert errors(kind, **{f"{at}readinessProbe__successThreshold": 2}) == []


@pytest.mark.parametrize(
    ("given", "warned"), [("0", True), ("0%", True), ("1", False), ("", False)]
)
def test_max_unavailable_zero_of_agents_is_a_warning(given: str, warned: bool) -> None:
    obj = minimal_object("ClusterPolicy")
    put(obj["spec"], "daemonsets.rollingUpdate.maxUnavailable", given)
    result = parse_manifest("ClusterPolicy", obj)
    assert result.errors == ()
    assert ["would never replace a pod" in found.problem for found in result.findings] == (
        [True] if warned else []
    )


@pytest.mark.parametrize("value", [{"a": object()}, {"a": "\ud800"}])
def test_free_form_fields_hold_json(value: dict[str, Any]) -> None:
    ((field, problem),) = errors("ClusterPolicy", daemonsets__podSecurityContext=value)
    assert field == "spec.daemonsets.podSecurityContext"
    assert problem == "cannot be written as JSON"


def test_only_one_variable_of_the_check_of_the_plugin_has_an_effect() -> None:
    obj = minimal_object("ClusterPolicy")
    names = ("WITH_WORKLOAD", "WITH_WAIT")
    env = [{"name": name, "value": "true"} for name in names]
    obj["spec"]["validator"] = {"plugin": {"env": env}}
    (found,) = parse_manifest("ClusterPolicy", obj).findings
    assert (found.field, found.value) == ("spec.validator.plugin.env", f'"{names[1]}"')
    assert found.severity is Severity.NOTE


def test_only_one_variable_of_the_mig_manager_has_an_effect() -> None:
    obj = minimal_object("ClusterPolicy")
    names = ("WITH_REBOOT", "WITH_SHUTDOWN_HOST_GPU_CLIENTS")
    obj["spec"]["migManager"] = {"env": [{"name": name, "value": "true"} for name in names]}
    (found,) = parse_manifest("ClusterPolicy", obj).findings
    assert (found.field, found.value) == ("spec.migManager.env", f'"{names[1]}"')
    assert found.severity is Severity.NOTE


@pytest.mark.parametrize(
    ("version", "before", "precompiled", "problem"),
    [
        ("999", "580.95.05", False, "not use precompiled drivers: name a full version, like 580."),
        ("590", "none", False, "is a branch"),
        ("590.48.01", "580", True, "uses precompiled drivers: name a branch, like 580"),
        ("590.48.01", "580.95.05", False, ""),
        ("590", "580", True, ""),
        ("590", "580", False, ""),
        ("590.48.01", "580.95.05", True, ""),
        (f"sha256:{'a' * 64}", "580.95.05", False, ""),
        (f"sha256:{'a' * 64}", "580", True, ""),
    ],
)
def test_a_branch_names_precompiled_drivers_alone_unless_the_policy_has_it_otherwise(
    version: str, before: str, precompiled: bool, problem: str
) -> None:
    found = misnamed_version(version, before, precompiled=precompiled)
    assert problem in found
    assert bool(found) is bool(problem)
