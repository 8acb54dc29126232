"""Dashboards and alerts, as files and as the chart brings them."""

import re
from itertools import combinations

import pytest
import yaml

from libs.policy.render.agents import AGENTS
from libs.policy.render.rendered import COMMON_LABELS
from tests.component.chart.boards import ALERTS, BOARDS, FOLDER, RULES, panel_queries, panels
from tests.component.chart.conftest import Render
from tests.component.chart.promql import grouped_by, metrics_of
from tests.component.chart.rendered import CHART, Object, of_kind

ROOT = CHART.parents[1]
ALL = ("monitoring.monitors=true", "monitoring.rules=true", "monitoring.dashboards=true")
KINDS = {"fleet", "gpu", "node", "services", "upgrade"}


def switches(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def test_the_dashboards_are_there_and_found_in_deploy() -> None:
    assert set(BOARDS) == KINDS
    assert (ROOT / "deploy/dashboards").resolve() == FOLDER.resolve()
    uids = [board["uid"] for board in BOARDS.values()]
    assert uids == [f"sluice-{name}" for name in BOARDS]


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_panels_have_ids_places_and_titles_of_their_own(name: str) -> None:
    board = BOARDS[name]
    ids = [each["id"] for each in board["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [each["title"] for each in panels(board)]
    assert len(set(titles)) == len(titles)
    places = [each["gridPos"] for each in board["panels"]]
    assert all(each["x"] >= 0 and each["x"] + each["w"] <= 24 for each in places)
    overlapping = [pair for pair in combinations(places, 2) if overlap(*pair)]
    assert overlapping == []


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_queries_use_the_chosen_source_and_declared_variables(name: str) -> None:
    board = BOARDS[name]
    declared = {each["name"] for each in board["templating"]["list"]} | {"__rate_interval"}
    for panel in panels(board):
        assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= declared, panel["title"]
            legend = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            is_grouped = " by (" in target["expr"]
            assert not is_grouped or legend <= grouped_by(target["expr"]), panel["title"]


def test_every_alert_has_a_runbook() -> None:
    for name, rule in ALERTS.items():
        page = ROOT / rule["annotations"]["runbook_url"]
        assert page.is_file(), name
        assert name in page.read_text(), f"{page} does not name {name}"
        assert f"`{name}`" in (ROOT / "docs/metrics.md").read_text()
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_reader_of_queries_reads_them() -> None:
    query = 'max by (a, b) (rate(m_total{x="y{",z=~"."}[5m])) / on (c) group_left (d) n > 0.5 and p'
    assert metrics_of(query) == {"m_total": {"x", "z"}, "n": set(), "p": set()}
    assert grouped_by(query) == {"a", "b", "c", "d"}
    assert len(panel_queries()) > 60


def test_nothing_of_it_is_installed_unless_wanted(render: Render) -> None:
    kinds = {each["kind"] for each in render()}
    assert kinds.isdisjoint({"ServiceMonitor", "PrometheusRule", "NetworkPolicy"})


def test_the_chart_brings_them(render: Render) -> None:
    objects = render(*switches(*ALL, "monitoring.labels.release=kps"))
    maps = of_kind(objects, "ConfigMap")
    for name in KINDS:
        brought = maps[f"sluice-dashboard-{name}"]
        assert brought["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert brought["data"] == {
            f"sluice-{name}.json": (FOLDER / f"{name}.json").read_text().strip()
        }
    rule = of_kind(objects, "PrometheusRule")["sluice"]
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    assert rule["metadata"]["labels"]["release"] == "kps"


def test_runbooks_are_linked_where_they_are_published(render: Render) -> None:
    where = "monitoring.runbooks=https://docs.example/sluice/"
    rule = of_kind(render(*switches(*ALL, where)), "PrometheusRule")["sluice"]
    (group,) = rule["spec"]["groups"]
    urls = {each["alert"]: each["annotations"]["runbook_url"] for each in group["rules"]}
    assert urls["SluiceXID"] == "https://docs.example/sluice/xid.md"
    assert all(url.startswith("https://docs.example/sluice/") for url in urls.values())


def test_the_monitor_selects_every_service_and_one_page_of_gpus(render: Render) -> None:
    objects = render(*switches(*ALL))
    monitor = of_kind(objects, "ServiceMonitor")["sluice"]["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    ports: dict[str, list[str]] = {
        name: [each["name"] for each in service["spec"]["ports"]]
        for name, service in of_kind(objects, "Service").items()
        if wanted <= service["metadata"]["labels"].items() and "nats" not in name
    }
    assert len(ports) == 6
    assert all("metrics" in each for each in ports.values())
    assert [each["port"] for each in monitor["endpoints"]] == ["metrics", "gpu-metrics"]
    by_node = render(*switches(*ALL, "dcgmExporter.serviceMonitor.enabled=true"))
    monitor = of_kind(by_node, "ServiceMonitor")["sluice"]["spec"]
    assert [each["port"] for each in monitor["endpoints"]] == ["metrics"]


def test_agents_reach_nats_and_names_only(render: Render) -> None:
    policies = of_kind(render(*switches("networkPolicies.enabled=true")), "NetworkPolicy")
    assert len(policies) == 9
    egress = policies["sluice-agents"]["spec"]["egress"]
    assert [[each["port"] for each in rule["ports"]] for rule in egress] == [[53, 53], [4222]]
    (nats,) = egress[1]["to"]
    assert nats["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "nats"
    for name, policy in policies.items():
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"], name


def test_services_reach_the_api_server_and_sign_in_its_keys(render: Render) -> None:
    keys = "signIn.jwksUrl=https://oidc.example:8443/keys"
    policies = of_kind(render(*switches("networkPolicies.enabled=true", keys)), "NetworkPolicy")
    ports = {
        name: [each["port"] for each in policy["spec"]["egress"][-1]["ports"]]
        for name, policy in policies.items()
    }
    assert ports["sluice-scheduler"] == [443, 6443]
    assert ports["sluice-sign-in"] == [443, 6443, 8443]
    for name in ("sluice-scheduler", "sluice-telemetry-cluster", "sluice-agents"):
        (scrape,) = policies[name]["spec"]["ingress"]
        (prometheus,) = scrape["from"]
        assert prometheus["namespaceSelector"]["matchLabels"] == {
            "kubernetes.io/metadata.name": "monitoring"
        }


def test_network_policies_select_the_pods(render: Render) -> None:
    """Each pod of services and NATS by one policy, each agent's pod by that of agents."""
    objects = render(*switches("networkPolicies.enabled=true"))
    policies = of_kind(objects, "NetworkPolicy")
    selectors = {
        name: each["spec"]["podSelector"]["matchLabels"].items()
        for name, each in policies.items()
        if name not in ("sluice-agents", "sluice-dra")
    }
    for kind in ("Deployment", "StatefulSet"):
        for name, workload in of_kind(objects, kind).items():
            labels = workload["spec"]["template"]["metadata"]["labels"].items()
            assert [policy for policy, wanted in selectors.items() if wanted <= labels] == [name]
    selected = policies["sluice-agents"]["spec"]["podSelector"]
    assert selected["matchLabels"].items() <= COMMON_LABELS.items()
    (apps,) = selected["matchExpressions"]
    claims = policies["sluice-dra"]["spec"]["podSelector"]["matchLabels"]["app"]
    assert {agent.app for agent in AGENTS} - {claims} == set(apps["values"])
    assert apps["values"] + [claims] == nats_clients(policies["sluice-nats"])


def nats_clients(policy: Object) -> list[str]:
    """Return the agents that may connect to NATS."""
    _, agents = policy["spec"]["ingress"][0]["from"]
    (apps,) = agents["podSelector"]["matchExpressions"]
    return apps["values"]
