"""Write the parts of the chart that are made from the model: rights, and the fields of a policy.

With `--check`, list stale files instead.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import crds
import generated

from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects

RIGHTS: Final = "deploy/chart/templates/rights.yaml"
FIELDS: Final = "deploy/chart/files/cluster-policy-fields.json"
NAMESPACE: Final = "{{ .Release.Namespace }}"
CRD: Final = "clusterpolicies.nvidia.com"

_HEADER: Final = "{{- /* Made from libs.policy by `make fix`; edit the model, not this file. */}}\n"
_ADMISSION: Final = "ValidatingAdmissionPolicy"
_FROM_1_30: Final = '{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}'
_END: Final = "{{- end }}"


def expected_files() -> dict[str, str]:
    """Return the text of every generated file by path."""
    fields = json.dumps(policy_fields(), indent=1, sort_keys=True)
    return {RIGHTS: rights(), FIELDS: f"{fields}\n"}


def rights() -> str:
    """Return the ServiceAccounts, roles and bindings. The namespace is the administrator's."""
    objects = [each for each in installation_objects(NAMESPACE) if each["kind"] != "Namespace"]
    return _HEADER + "".join(map(_document, objects))


def _document(each: Mapping[str, Any]) -> str:
    """Return a document; API servers that lack a kind of policies get none of it."""
    text = f"---\n{crds.yaml(each)}"
    return f"{_FROM_1_30}\n{text}{_END}\n" if each["kind"].startswith(_ADMISSION) else text


def policy_fields() -> dict[str, Any]:
    """Return the names of the fields of a ClusterPolicy's spec, as a tree; true is a leaf."""
    schema = crd_manifests()[CRD]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return _tree(schema["properties"]["spec"])


def _tree(schema: Mapping[str, Any]) -> Any:
    below: Mapping[str, Any] = schema.get("properties", {})
    return {name: _tree(child) for name, child in below.items()} or True


def main(arguments: Sequence[str]) -> int:
    """Write the files, or list the stale ones; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools/chart.py", description="Write parts of the chart.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    return generated.write(expected_files(), check=parser.parse_args(arguments).check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
