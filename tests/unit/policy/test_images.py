"""Image paths of drivers, and variants of nodes."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.policy.findings import Finding
from libs.policy.kinds.common import Image
from libs.policy.variants import Variant, variant_image
from tests.unit.policy.situations import (
    DRIVER,
    FEATURES,
    UBUNTU,
    Situation,
    cluster_policy,
    drivers,
    node,
)

Object = dict[str, Any]
V22 = Variant(system="ubuntu", version="22.04")


@pytest.mark.parametrize(
    ("image", "variant", "path"),
    [
        (
            Image(repository="r.example", image="d", version="580"),
            V22,
            "r.example/d:580-ubuntu22.04",
        ),
        (Image(image="r.example:5000/d:580"), V22, "r.example:5000/d:580-ubuntu22.04"),
        (Image(repository="r", image="d", version="sha256:ab"), V22, "r/d@sha256:ab"),
        (Image(image="r/d@sha256:ab"), V22, "r/d@sha256:ab"),
        (
            Image(repository="r", image="d", version="580"),
            Variant(system="ubuntu", version="22.04", kernel="5.15.0-139-generic"),
            "r/d:580-5.15.0-139-generic-ubuntu22.04",
        ),
        (Image(image="r/d:1"), Variant(system="rhel", version="9"), "r/d:1-rhel9"),
    ],
)
def test_the_path_of_a_drivers_image_names_its_variant(
    image: Image, variant: Variant, path: str
) -> None:
    assert variant_image(image, variant) == path


@pytest.mark.parametrize(
    ("image", "variant", "problem"),
    [
        (Image(), V22, "names no image"),
        (Image(repository="r", version="1"), V22, "names no image"),
        (Image(image="r.example:5000/d"), V22, "has no tag"),
        (Image(repository="r", image="d", version="5" * 117), V22, "is too long: with '-ubuntu22"),
        (Image(image=f"r/d:{'5' * 117}"), V22, "is too long"),
        (Image(image="r/d@sha256:a"), Variant(system="u", version="1", kernel="5"), "is a digest"),
    ],
)
def test_an_image_that_cannot_be_run_is_a_finding_with_a_remedy(
    image: Image, variant: Variant, problem: str
) -> None:
    found = variant_image(image, variant)
    assert isinstance(found, Finding)
    assert problem in found.problem
    assert found.remedy


# Variants


def test_nodes_of_one_system_share_a_variant() -> None:
    nodes = [
        node("a"),
        node("b", kernel="6.8.0-1-generic"),
        node("c", version="24.04"),
        node("d", system="rhel", version="9.4"),
        node("e", system="rhel", version="9.6"),
    ]
    placement = Situation([cluster_policy()], nodes).placement()
    assert [variant.os_tag for variant in placement.pools["clusterpolicy-cluster-policy"]] == [
        "rhel9",
        "ubuntu22.04",
        "ubuntu24.04",
    ]
    assert placement.nodes["a"] == placement.nodes["b"] == V22
    precompiled = cluster_policy(driver={**DRIVER, "usePrecompiled": True})
    kernels = Situation([precompiled], nodes[:2]).placement().nodes
    assert [kernels[name].kernel for name in "ab"] == ["5.15.0-139-generic", "6.8.0-1-generic"]


@pytest.mark.parametrize(
    ("label", "driver"),
    [
        ("system-os_release.ID", {}),
        ("system-os_release.VERSION_ID", {}),
        ("kernel-version.full", {"usePrecompiled": True}),
    ],
)
def test_a_node_without_system_labels_has_no_variant(label: str, driver: Object) -> None:
    labels = {key: value for key, value in UBUNTU.labels.items() if key != f"{FEATURES}{label}"}
    unknown = replace(UBUNTU, labels=labels)
    situation = Situation([cluster_policy(driver={**DRIVER, **driver})], [unknown])
    assert situation.placement().unknown == {"a": f"{FEATURES}{label}"}
    assert drivers(situation.rendering()) == []
