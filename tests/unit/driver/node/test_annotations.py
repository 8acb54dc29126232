"""What annotations give containers: which one applies, which namespaces, and hostile values."""

import pytest

from libs.host.nri.port import InjectionRefused, NewContainer
from libs.policy.kinds.agents import NRI_GPUS, NRI_MANAGEMENT
from services.driver.node.annotations import (
    MAX_BYTES,
    MAX_DEVICES,
    AnnotatedDevices,
    annotation_for,
    parse,
)

OWN = "nvidia.cdi.k8s.io/container.main"
POD = "nvidia.cdi.k8s.io/pod"
BARE = "nvidia.cdi.k8s.io"
GPU = "nvidia.com/gpu=GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
MIG = "nvidia.com/gpu=0:1"
MANAGEMENT = "management.nvidia.com/gpu=all"


def given(
    annotations: dict[str, str],
    *,
    namespace: str = "team",
    container: str = "main",
    has: tuple[str, ...] = (),
    unavailable: str = "",
) -> list[str]:
    injector = AnnotatedDevices(
        gpus=("team", "both"), management=("sluice", "both"), unavailable=lambda: unavailable
    )
    asked = NewContainer(
        namespace=namespace,
        pod="pod",
        name=container,
        annotations=annotations,
        devices=frozenset(has),
    )
    return list(injector.devices(asked))


def test_a_container_gets_the_devices_of_its_annotation() -> None:
    assert given({OWN: GPU}) == [GPU]
    assert given({OWN: f"{GPU},{MIG},{GPU}"}) == [GPU, MIG]
    assert given({OWN: MANAGEMENT}, namespace="sluice") == [MANAGEMENT]
    assert given({OWN: f"{MANAGEMENT},{MIG}"}, namespace="both") == [MANAGEMENT, MIG]


def test_without_an_annotation_a_container_gets_nothing() -> None:
    others = ("nvidia.cdi.k8s.io/container.other", "cdi.k8s.io/main", "nvidia.cdi.k8s.io/main")
    assert given({}) == []
    assert given(dict.fromkeys(others, GPU), namespace="elsewhere") == []


def test_the_annotation_of_a_container_goes_before_that_of_all() -> None:
    assert annotation_for({BARE: "a", POD: "b", OWN: "c"}, "main") == (OWN, "c")
    assert annotation_for({BARE: "a", POD: "b", OWN: "c"}, "side") == (POD, "b")
    assert annotation_for({BARE: "a"}, "side") == (BARE, "a")


def test_what_a_container_has_already_is_not_given_again() -> None:
    assert given({OWN: f"{GPU},{MIG}"}, has=(GPU, "example.com/x=1")) == [MIG]


@pytest.mark.parametrize("namespace", ["elsewhere", "", "tea", "team-a", "Team", "*"])
@pytest.mark.parametrize("device", [GPU, MIG, MANAGEMENT])
def test_other_namespaces_are_refused(namespace: str, device: str) -> None:
    for key in (OWN, POD, BARE):
        with pytest.raises(InjectionRefused, match=rf"^the annotation {key} asks for devices of "):
            given({key: device}, namespace=namespace)


@pytest.mark.parametrize(
    ("namespace", "device", "variable"),
    [
        ("team", MANAGEMENT, NRI_MANAGEMENT),
        ("sluice", GPU, NRI_GPUS),
    ],
)
def test_a_namespace_is_listed_for_each_kind(namespace: str, device: str, variable: str) -> None:
    with pytest.raises(InjectionRefused, match=variable):
        given({OWN: device}, namespace=namespace)
    with pytest.raises(InjectionRefused, match=variable):
        given({OWN: f"{GPU},{MANAGEMENT}"}, namespace=namespace)


def test_gpus_are_refused_while_there_are_none_to_give() -> None:
    with pytest.raises(InjectionRefused, match="now: the driver or the GPUs are being changed"):
        given({OWN: GPU}, unavailable="the driver or the GPUs are being changed")
    assert given({OWN: MANAGEMENT}, namespace="sluice", unavailable="no GPU") == [MANAGEMENT]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "all",
        "nvidia.com/gpu",
        "nvidia.com/gpu=",
        f"{GPU},",
        f"{GPU}, {MIG}",
        "nvidia.com/gpu=../0",
        "nvidia.com/gpu=a/b",
        "nvidia.com/gpu=" + "a" * 129,
        "example.com/net=eth0",
        "k8s.device-plugin.nvidia.com/gpu=0",
        "NVIDIA.com/gpu=0",
        "nvidia.com/gpu=0\n",
        "nvidia.com/gpu=\u0660",
        "\x1b[2J\u202e" * 100,
    ],
)
def test_names_that_are_no_devices_are_refused(value: str) -> None:
    with pytest.raises(InjectionRefused) as raised:
        parse(value)
    assert str(raised.value).replace("…", ".").isascii()
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1000


def test_an_annotation_has_limits() -> None:
    most = [f"nvidia.com/gpu={number}" for number in range(MAX_DEVICES)]
    assert parse(",".join(most)) == tuple(most)
    with pytest.raises(InjectionRefused, match=f"names {MAX_DEVICES + 1} devices"):
        parse(",".join([*most, "nvidia.com/gpu=more"]))
    with pytest.raises(InjectionRefused, match="longer than 16 KiB"):
        parse("a" * (MAX_BYTES + 1))
