"""Configuration files of NVIDIA's device plugin load or are refused, as they are there."""

from typing import Any

import pytest

from libs.policy.plugin_config.config import (
    IdStrategy,
    ListStrategy,
    MigStrategy,
    PluginConfig,
    RefusedConfig,
    SharingPolicy,
    TimeSlicing,
)
from libs.policy.plugin_config.file import load_config

UUID = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"


def sharing(resource: str = "{name: gpu, replicas: 2}", more: str = "") -> str:
    return f"sharing: {{timeSlicing: {{{more}resources: [{resource}]}}}}"


WHOLE = """
version: v1
flags:
  migStrategy: single
  failOnInitError: true
  mpsRoot: ""
  nvidiaDriverRoot: ""
  nvidiaDevRoot: ""
  gdrcopyEnabled: true
  gdsEnabled: false
  mofedEnabled: true
  useNodeFeatureAPI: null
  deviceDiscoveryStrategy: auto
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [envvar, cdi-annotations]
    deviceIDStrategy: uuid
    cdiAnnotationPrefix: cdi.k8s.io/
    nvidiaCTKPath: ""
    containerDriverRoot: ""
    sharedDevicesAllocationPolicy: distributed
  gfd: {oneshot: true, noTimestamp: false, sleepInterval: 60s, outputFile: /a, machineTypeFile: /b}
resources: {gpus: [], mig: []}
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, devices: all, replicas: 8}
    - {name: nvidia.com/mig-1g.10gb, devices: all, replicas: 2}
imex: {channelIDs: [0], required: false}
"""
"""Every field of the format."""

LOADED: dict[str, dict[str, Any]] = {
    WHOLE: {
        "mig_strategy": MigStrategy.SINGLE,
        "list_strategies": frozenset({ListStrategy.ENVVAR, ListStrategy.CDI_ANNOTATIONS}),
        "pass_device_specs": True,
        "gdrcopy": True,
        "gds": False,
        "mofed": True,
        "imex": True,
        "time_slicing": TimeSlicing(
            replicas={"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 2}, one_per_container=True
        ),
    },
    "": {},
    "{}": {},
    "version: v1": {},
    "a: 2001-99-99": {},
    'version: ""': {},
    "VERSION: v1\nunknown: {a: [b]}": {},
    "flags: {migStrategy: mixed}": {"mig_strategy": MigStrategy.MIXED},
    "flags: {MigStrategy: single, plugin: null}": {"mig_strategy": MigStrategy.SINGLE},
    "flags: {failOnInitError: no, gdsEnabled: yes}": {"gds": True},
    "flags: {gfd: {sleepInterval: 1m30s, oneshot: false}}": {},
    "flags: {gfd: {sleepInterval: 60000000000}}": {},
    "flags: {plugin: {deviceListStrategy: envvar}}": {
        "list_strategies": frozenset({ListStrategy.ENVVAR})
    },
    "flags: {plugin: {deviceListStrategy: [cdi-cri, volume-mounts]}}": {
        "list_strategies": frozenset({ListStrategy.CDI_CRI, ListStrategy.VOLUME_MOUNTS})
    },
    "flags: {plugin: {deviceIDStrategy: index, passDeviceSpecs: true}}": {
        "id_strategy": IdStrategy.INDEX,
        "pass_device_specs": True,
    },
    "flags: {plugin: {cdiAnnotationPrefix: cdi.example/}}": {"annotation_prefix": "cdi.example/"},
    "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}": {
        "sharing_policy": SharingPolicy.PACKED
    },
    sharing(): {"time_slicing": TimeSlicing(replicas={"nvidia.com/gpu": 2})},
    sharing("{name: nvidia.com/mig-1g.10gb, replicas: 4.0}"): {
        "time_slicing": TimeSlicing(replicas={"nvidia.com/mig-1g.10gb": 4})
    },
    sharing(more="renameByDefault: true, failRequestsGreaterThanOne: true, "): {
        "time_slicing": TimeSlicing(
            replicas={"nvidia.com/gpu": 2}, rename=True, one_per_container=True
        )
    },
    '{"version": "v1", "imex": {"channelIDs": [0], "required": true}}': {
        "imex": True,
        "imex_required": True,
    },
    "imex: {channelIDs: [], required: true}": {},
    "imex: {channelIDs: []}": {},
}
"""What the settings become, where they differ from the defaults."""

_IGNORED: dict[str, tuple[str, ...]] = {
    "resources: {gpus: [{pattern: '*', name: gpu-a}], mig: [{pattern: 1g, name: b}]}": (
        "resources.gpus[0]",
        "resources.mig[0]",
    ),
    "flags: {nvidiaDriverRoot: /run, plugin: {nvidiaCTKPath: /a}}": (
        "flags.nvidiaDriverRoot",
        "flags.plugin.nvidiaCTKPath",
    ),
    sharing(f"{{name: gpu, replicas: 2, devices: [0, '0:1', GPU-{UUID}], rename: a}}"): (
        "sharing.timeSlicing.resources[0].devices",
        "sharing.timeSlicing.resources[0].rename",
    ),
    sharing(f"{{name: gpu, replicas: 2, devices: [MIG-{UUID}, MIG-GPU-{UUID}/1/0]}}"): (
        "sharing.timeSlicing.resources[0].devices",
    ),
    sharing("{name: gpu, replicas: 2, devices: 3}"): ("sharing.timeSlicing.resources[0].devices",),
    sharing("{name: gpu, replicas: 2, devices: all}"): (),
}

REFUSED = {
    "version: v2": "version 'v2' is not known",
    "version: 1": "version '1' is not known",
    "[]": "the file is no mapping",
    "text": "the file is no mapping",
    "a: [": "the file, line 2: it is no YAML",
    "flags: []": "flags is no mapping",
    "flags: {migStrategy: some}": "flags.migStrategy is 'some'",
    "flags: {migStrategy: [none]}": "flags.migStrategy is no text",
    "flags: {failOnInitError: maybe}": "flags.failOnInitError is neither true nor false",
    "flags: {gdsEnabled: 1}": "flags.gdsEnabled is neither true nor false",
    "flags: {deviceDiscoveryStrategy: tegra}": "write auto or nvml",
    "flags: {gfd: {sleepInterval: soon}}": "flags.gfd.sleepInterval is no duration",
    "flags: {plugin: {deviceListStrategy: other}}": "deviceListStrategy is 'other'",
    "flags: {plugin: {deviceListStrategy: 'envvar,cdi-cri'}}": "deviceListStrategy is",
    "flags: {plugin: {deviceListStrategy: []}}": "deviceListStrategy is empty",
    "flags: {plugin: {deviceListStrategy: [1]}}": "an entry that is no text",
    "flags: {plugin: {deviceListStrategy: {}}}": "deviceListStrategy is no list",
    "flags: {plugin: {deviceIDStrategy: name}}": "deviceIDStrategy is 'name'",
    "flags: {plugin: {sharedDevicesAllocationPolicy: any}}": "sharedDevicesAllocationPolicy is",
    "sharing: {timeSlicing: {}}": "sharing.timeSlicing.resources is missing or empty",
    "sharing: {timeSlicing: null}": "sharing.timeSlicing.resources is missing or empty",
    "sharing: {timeSlicing: {resources: []}}": "sharing.timeSlicing.resources is missing or empty",
    "sharing: {timeSlicing: {resources: {}}}": "sharing.timeSlicing.resources is no list",
    "sharing: {timeSlicing: []}": "sharing.timeSlicing is no mapping",
    sharing("{replicas: 2}"): "resources[0].name is missing",
    sharing("{name: $invalid$, replicas: 2}"): "resources[0].name is '$invalid$'",
    sharing(f"{{name: {'a' * 53}, replicas: 2}}"): "up to 52 lower-case letters",
    sharing("{name: gpu}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: 1}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: 0}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: -1}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: 2.5}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: '2'}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: true}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: .inf}"): "resources[0].replicas is no number",
    sharing("{name: gpu, replicas: 2, rename: $invalid$}"): "resources[0].rename is '$invalid$'",
    sharing("{name: gpu, replicas: 2, devices: some}"): "resources[0].devices is neither",
    sharing("{name: gpu, replicas: 2, devices: 0}"): "resources[0].devices is neither",
    sharing("{name: gpu, replicas: 2, devices: -2}"): "resources[0].devices is neither",
    sharing("{name: gpu, replicas: 2, devices: [-1]}"): "resources[0].devices is neither",
    sharing("{name: gpu, replicas: 2, devices: ['-1']}"): "resources[0].devices is neither",
    sharing("{name: gpu, replicas: 2, devices: [GPU-UUID]}"): "resources[0].devices is neither",
    sharing("{name: gpu, replicas: 2, devices: null}"): "resources[0].devices is neither",
    sharing(f"{{name: gpu, replicas: 2, devices: [MIG-GPU-{UUID}]}}"): "devices is neither",
    sharing(more="renameByDefault: 1, "): "renameByDefault is neither true nor false",
    "resources: {gpus: [{pattern: '*', name: A}]}": "resources.gpus[0].name is 'A'",
    "imex: {channelIDs: [1]}": "imex.channelIDs has other channels than 0",
    "imex: {channelIDs: [0, 1]}": "imex.channelIDs has other channels than 0",
    "imex: {required: 2}": "imex.required is neither true nor false",
    "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}": "Sluice does not support MPS",
    "sharing: {mps: {resources: [{name: gpu, replicas: 1}]}}": "resources[0].replicas is no number",
    "sharing: {mps: {}}": "sharing.mps.resources is missing or empty",
    f"{sharing()[:-1]}, mps: {{resources: [{{name: gpu, replicas: 2}}]}}}}": "not support MPS",
    "x: " + "y" * (1 << 20): "more than 1048576 characters",
}


@pytest.mark.parametrize("text", LOADED, ids=range(len(LOADED)))
def test_a_file_loads(text: str) -> None:
    assert load_config(text).config == PluginConfig(**LOADED[text])


@pytest.mark.parametrize("text", _IGNORED)
def test_what_has_no_effect_is_named(text: str) -> None:
    assert load_config(text).ignored == _IGNORED[text]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_a_file_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(RefusedConfig) as error:
        load_config(text)
    assert REFUSED[text] in str(error.value)
    assert len(str(error.value)) < 300


def test_a_file_changes_only_what_it_names() -> None:
    defaults = PluginConfig(mig_strategy=MigStrategy.SINGLE, pass_device_specs=True)
    loaded = load_config("flags: {plugin: {passDeviceSpecs: false}}", defaults).config
    assert loaded == PluginConfig(mig_strategy=MigStrategy.SINGLE)
