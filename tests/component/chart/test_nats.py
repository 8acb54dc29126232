"""NATS in the chart: its own, its own with a certificate of cert-manager, or one that exists."""

from pathlib import Path

from libs.policy.render import agents
from services.signin.setup.contents import CA, FOLDER, SERVER, SERVICE, Wanted
from tests.component.chart.conftest import Render
from tests.component.chart.rendered import Object, environment, of_kind, pods

CERTIFICATE = "sluice-nats-certificate"
CA_FILE = "/run/sluice/bus/ca.crt"


def values(name: str) -> tuple[str, str]:
    return "--values", str(Path(__file__).parent / "values" / f"{name}.yaml")


def clients(objects: list[Object]) -> dict[str, Object]:
    """Return the pods that connect to NATS."""
    return {
        name: pod
        for name, pod in pods(objects)
        if any(each["name"] == "SLUICE_NATS_URL" for each in environment_of(pod))
    }


def environment_of(pod: Object) -> list[Object]:
    (container,) = pod["spec"]["containers"]
    return container.get("env", [])


def authorities(pod: Object) -> list[str]:
    """Return the ConfigMaps that a client mounts a CA from."""
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == "bus")
    sources = volume.get("projected", {}).get("sources", [])
    return [each["configMap"]["name"] for each in sources if "configMap" in each]


def test_every_client_has_the_ca_of_the_setup(render: Render) -> None:
    found = clients(render())
    assert len(found) == 7
    for name, pod in found.items():
        assert authorities(pod) == [CA], name
        assert environment(pod)["SLUICE_NATS_CA_FILE"] == CA_FILE, name
    assert environment(found["Deployment/sluice-driver-cluster"])["SLUICE_AGENT_BUS_CA"] == CA


def test_an_existing_nats_is_used_by_every_client(render: Render) -> None:
    objects = render(*values("existing_nats"))
    assert of_kind(objects, "StatefulSet") == {}
    assert "sluice-nats" not in of_kind(objects, "Service")
    assert "sluice-nats" not in of_kind(objects, "NetworkPolicy")
    url = "tls://nats.example:14222"
    found = clients(objects)
    assert len(found) == 7
    for name, pod in found.items():
        assert environment(pod)["SLUICE_NATS_URL"] == url, name
        assert authorities(pod) == ["ca-of-nats"], name
    driver = environment(found["Deployment/sluice-driver-cluster"])
    assert driver["SLUICE_AGENT_BUS_CA"] == "ca-of-nats"
    assert driver["SLUICE_AGENT_ENV"] == f"SLUICE_NATS_URL={url}"
    assert environment(found["Deployment/sluice-scheduler"])["SLUICE_STREAM_REPLICAS"] == "3"
    for name in ("sluice-agents", "sluice-scheduler"):
        egress = of_kind(objects, "NetworkPolicy")[name]["spec"]["egress"]
        ports = [port["port"] for rule in egress for port in rule["ports"]]
        assert ports[:3] == [53, 53, 14222]


def test_the_scheduler_knows_the_server_that_was_the_only_one(render: Render) -> None:
    """A server's tag is the name of its pod; with servers of others there is none to know."""
    for arguments in ((), values("three_nats_servers")):
        objects = render(*arguments)
        config = of_kind(objects, "ConfigMap")["sluice-nats-config"]["data"]["server.conf"]
        assert "server_tags: [$POD_NAME]" in config.splitlines()
        scheduler = environment(
            of_kind(objects, "Deployment")["sluice-scheduler"]["spec"]["template"]
        )
        assert scheduler["SLUICE_STREAM_ORIGIN"] == f"{SERVICE}-0"
    found = of_kind(render(*values("existing_nats")), "Deployment")["sluice-scheduler"]
    assert "SLUICE_STREAM_ORIGIN" not in environment(found["spec"]["template"])


def test_the_keys_of_sign_in_are_made_for_an_existing_nats_too(render: Render) -> None:
    jobs = of_kind(render(*values("existing_nats")), "Job")
    assert environment(jobs["sluice-setup"]["spec"]["template"])["SLUICE_SERVERS"] == "3"


def test_without_a_ca_clients_trust_those_of_the_image(render: Render) -> None:
    found = clients(render(*values("existing_nats_of_a_public_ca")))
    assert len(found) == 7
    for name, pod in found.items():
        assert authorities(pod) == [], name
        assert "SLUICE_NATS_CA_FILE" not in environment(pod), name
    assert "SLUICE_AGENT_BUS_CA" not in environment(found["Deployment/sluice-driver-cluster"])


def test_a_certificate_of_cert_manager_has_the_names_of_the_setup(render: Render) -> None:
    objects = render(*values("cert_manager"))
    spec = of_kind(objects, "Certificate")["sluice-nats"]["spec"]
    names = Wanted(namespace="gpu-operator", servers=3, nodes=1).names()
    assert spec["dnsNames"] == list(names)
    assert spec["issuerRef"] == {
        "name": "cluster-ca",
        "kind": "ClusterIssuer",
        "group": "cert-manager.io",
    }
    # Servers are each other's clients.
    assert spec["usages"] == ["server auth", "client auth"]
    assert spec["secretName"] == CERTIFICATE


def test_servers_read_the_certificate_of_cert_manager(render: Render) -> None:
    """Their configuration is still that of the setup, which names files of one folder."""
    server = of_kind(render(*values("cert_manager")), "StatefulSet")["sluice-nats"]
    spec = server["spec"]["template"]["spec"]
    (volume,) = (each for each in spec["volumes"] if each["name"] == "config")
    secrets = [each["secret"] for each in volume["projected"]["sources"] if "secret" in each]
    assert secrets == [
        {"name": SERVER, "items": [{"key": "nats.conf", "path": "nats.conf"}]},
        {"name": CERTIFICATE},
    ]
    (container,) = spec["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "config")
    assert mount["mountPath"] == FOLDER


def test_the_monitor_of_agents_selects_all_of_them(render: Render) -> None:
    objects = render(*values("monitored"))
    spec = of_kind(objects, "PodMonitor")["sluice-agents"]["spec"]
    (selected,) = spec["selector"]["matchExpressions"]
    assert sorted(selected["values"]) == sorted(each.app for each in agents.AGENTS)
    addresses = [
        each
        for each in spec["podMetricsEndpoints"][0]["relabelings"]
        if each["targetLabel"] == "__address__"
    ]
    assert [each["replacement"] for each in addresses] == ["$1:8080", "[$1]:8080"]
