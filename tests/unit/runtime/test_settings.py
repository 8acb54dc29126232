"""Settings from the environment and a file: names, precedence and errors."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.runtime.settings import SettingsError, describe, leaves, load, resolve
from libs.runtime.values import Duration, Port, show


class Method(StrEnum):
    CONTAINER = "container"
    HOST = "host"


class Bus(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    token: str | None = None
    servers: tuple[str, ...] = ()
    reconnect: Duration = Duration(30)


class FormerBus(Bus, frozen=True, kw_only=True):
    GONE: ClassVar[Mapping[str, str]] = {"key": "give a token", "token": "never shown"}


class Former(msgspec.Struct, frozen=True, kw_only=True):
    bus: FormerBus


class Http(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "0.0.0.0"
    port: Port = 8080


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    bus: Bus
    http: Http = Http(port=9400)
    root: Path = Path("/host")
    method: Method = Method.CONTAINER
    level: Literal["debug", "info"] = "info"
    share: Annotated[float, msgspec.Meta(gt=0)] = 0.5
    workers: int | None = None
    dry: bool = False


def wrong(environ: dict[str, str], kind: type[msgspec.Struct] = Settings) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(kind, environ=environ)
    return caught.value.errors


def written(tmp_path: Path, text: str) -> dict[str, str]:
    file = tmp_path / "sluice.toml"
    file.write_text(text, encoding="utf-8")
    return {"SLUICE_CONFIG": str(file)}


def test_unset_values_take_their_defaults():
    settings = load(Settings, environ={"SLUICE_BUS_URL": "nats://bus", "PATH": "/bin"})
    assert settings == Settings(bus=Bus(url="nats://bus"))
    assert settings.http.port == 9400, "the parent's default, not the struct's own"


def test_each_type_is_read_from_the_environment():
    environ = {
        "SLUICE_BUS_URL": "nats://bus",
        "SLUICE_BUS_TOKEN": "hunter2",
        "SLUICE_BUS_SERVERS": "a:1, b:2,c:3",
        "SLUICE_BUS_RECONNECT": "1h30m",
        "SLUICE_HTTP_PORT": "0",
        "SLUICE_ROOT": "/tmp/host",
        "SLUICE_METHOD": "host",
        "SLUICE_LEVEL": "debug",
        "SLUICE_SHARE": "0.25",
        "SLUICE_WORKERS": "8",
        "SLUICE_DRY": "true",
    }
    assert load(Settings, environ=environ) == Settings(
        bus=Bus(
            url="nats://bus",
            token="hunter2",
            servers=("a:1", "b:2", "c:3"),
            reconnect=Duration(5400),
        ),
        http=Http(port=0),
        root=Path("/tmp/host"),
        method=Method.HOST,
        level="debug",
        share=0.25,
        workers=8,
        dry=True,
    )


def test_an_empty_variable_counts_as_not_set():
    assert load(Http, environ={"SLUICE_PORT": ""}) == Http()


def test_the_environment_takes_precedence_over_the_file(tmp_path: Path):
    environ = written(
        tmp_path,
        """
        root = "/file"
        workers = 3
        [bus]
        url = "nats://file"
        servers = ["a", "b"]
        reconnect = "5m"
        [http]
        port = 1234
        """,
    )
    settings = load(Settings, environ={**environ, "SLUICE_BUS_URL": "nats://environment"})
    assert settings.bus == Bus(
        url="nats://environment", servers=("a", "b"), reconnect=Duration(300)
    )
    assert (settings.http.port, settings.root, settings.workers) == (1234, Path("/file"), 3)


def test_all_errors_are_reported_together(tmp_path: Path):
    environ = written(tmp_path, "level = 'loud'\n[http]\nport = true\nprot = 1\n[bus]\ntoken = 5\n")
    file = environ["SLUICE_CONFIG"]
    environ |= {
        "SLUICE_BUS_RECONNECT": "30",
        "SLUICE_METHOD": "magic",
        "SLUICE_SHARE": "0",
        "SLUICE_WORKERS": "many",
        "SLUICE_DRY": "perhaps",
        "SLUICE_BUS_ULR": "nats://bus",
    }
    assert wrong(environ) == [
        "SLUICE_BUS_URL is not set: expected text (in a settings file: bus.url)",
        f"bus.token=5 (file {file}): expected text",
        "SLUICE_BUS_RECONNECT='30' (environment): expected a duration such as 30s, 5m or 1h30m",
        f"http.port=True (file {file}): expected a whole number from 0 to 65535",
        "SLUICE_METHOD='magic' (environment): expected one of container, host",
        f"level='loud' (file {file}): expected one of debug, info",
        "SLUICE_SHARE='0' (environment): expected a number above 0",
        "SLUICE_WORKERS='many' (environment): expected a whole number",
        "SLUICE_DRY='perhaps' (environment): expected true or false",
        "SLUICE_BUS_ULR (environment) is not a setting: did you mean SLUICE_BUS_URL?",
        f"http.prot (file {file}) is not a setting: did you mean http.port?",
    ]


def test_an_unknown_variable_is_named_without_its_value():
    assert wrong({"SLUICE_ZZZZZZZZ": "hunter2"}, Http) == [
        "SLUICE_ZZZZZZZZ (environment) is not a setting"
    ]


def test_a_setting_that_is_gone_says_what_to_do(tmp_path: Path):
    environ = written(tmp_path, '[bus]\nurl = "nats://bus"\nkey = "x"\n')
    assert wrong({**environ, "SLUICE_BUS_KEY": "y", "SLUICE_BUS_TOKEN": "z"}, Former) == [
        "SLUICE_BUS_KEY (environment) is gone: give a token",
        f"bus.key (file {environ['SLUICE_CONFIG']}) is gone: give a token",
    ]
    unset = {"SLUICE_BUS_URL": "nats://bus", "SLUICE_BUS_KEY": ""}
    assert load(Former, environ=unset).bus.url == "nats://bus"


def test_service_link_variables_of_kubernetes_are_ignored():
    environ = {
        "SLUICE_TELEMETRY_SERVICE_HOST": "10.0.0.1",
        "SLUICE_TELEMETRY_SERVICE_PORT": "9400",
        "SLUICE_TELEMETRY_SERVICE_PORT_METRICS": "9400",
        "SLUICE_TELEMETRY_PORT": "tcp://10.0.0.1:9400",
        "SLUICE_TELEMETRY_PORT_9400_TCP": "tcp://10.0.0.1:9400",
        "SLUICE_TELEMETRY_PORT_9400_TCP_PROTO": "tcp",
        "SLUICE_TELEMETRY_PORT_9400_TCP_ADDR": "10.0.0.1",
    }
    assert load(Http, environ=environ) == Http()
    assert wrong({"SLUICE_HTTP_PORT": "8080"}, Http) == [
        "SLUICE_HTTP_PORT (environment) is not a setting: did you mean SLUICE_PORT?"
    ]


def test_a_value_in_place_of_a_table_is_an_error(tmp_path: Path):
    environ = written(tmp_path, "http = 8080\n[bus]\nurl = 'x'\n")
    assert wrong(environ) == [f"http=8080 (file {environ['SLUICE_CONFIG']}): expected a table"]


def test_an_unreadable_or_malformed_file_is_an_error(tmp_path: Path):
    missing = tmp_path / "missing.toml"
    assert wrong({"SLUICE_CONFIG": str(missing)}, Http) == [
        f"cannot read the settings file {missing}: No such file or directory"
    ]
    environ = written(tmp_path, "port 8080")
    (error,) = wrong(environ, Http)
    assert error == (
        f"the settings file {environ['SLUICE_CONFIG']} is not TOML: "
        "Expected '=' after a key in a key/value pair (at line 1, column 6)"
    )


def test_errors_of_post_init_are_reported():
    class Window(msgspec.Struct, frozen=True):
        first: int
        last: int

        def __post_init__(self) -> None:
            if self.first > self.last:
                raise ValueError(f"first ({self.first}) is after last ({self.last})")

    class Windows(msgspec.Struct, frozen=True):
        day: Window
        night: Window

    environ = {
        "SLUICE_DAY_FIRST": "2",
        "SLUICE_DAY_LAST": "1",
        "SLUICE_NIGHT_FIRST": "9",
        "SLUICE_NIGHT_LAST": "8",
    }
    assert wrong(environ, Windows) == [
        "day: first (2) is after last (1)",
        "night: first (9) is after last (8)",
    ]


def test_describe_lists_values_with_origins(tmp_path: Path):
    environ = written(tmp_path, "dry = true\n[bus]\nservers = ['a', 'b']\n")
    environ |= {"SLUICE_BUS_URL": "nats://bus", "SLUICE_BUS_TOKEN": "hunter2"}
    file = environ["SLUICE_CONFIG"]
    shown = describe(resolve(Settings, environ=environ)).splitlines()
    assert [" ".join(line.split()) for line in shown] == [
        "SLUICE_BUS_URL=nats://bus # environment",
        "SLUICE_BUS_TOKEN=hunter2 # environment",
        f"SLUICE_BUS_SERVERS=a,b # file {file}",
        "SLUICE_BUS_RECONNECT=30s # default",
        "SLUICE_HTTP_HOST=0.0.0.0 # default",
        "SLUICE_HTTP_PORT=9400 # default",
        "SLUICE_ROOT=/host # default",
        "SLUICE_METHOD=container # default",
        "SLUICE_LEVEL=info # default",
        "SLUICE_SHARE=0.5 # default",
        "SLUICE_WORKERS= # default",
        f"SLUICE_DRY=true # file {file}",
    ]
    assert len({line.index("#") for line in shown}) == 1


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Annotated[int, msgspec.Meta(ge=1)], "a whole number of at least 1"),
        (Annotated[int, msgspec.Meta(gt=0, lt=9)], "a whole number above 0 and below 9"),
        (Annotated[int, msgspec.Meta(ge=0, le=9)], "a whole number from 0 to 9"),
        (Annotated[float, msgspec.Meta(le=1)], "a number of at most 1"),
        (Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], "text matching ^[a-z]+$"),
        (list[int], "a list (comma-separated in the environment), each a whole number"),
    ],
)
def test_types_are_described_in_words(kind: object, wanted: str):
    (setting,) = leaves(msgspec.defstruct("One", [("field", kind)]))
    assert (setting.variable, setting.expected) == ("SLUICE_FIELD", wanted)


def test_a_struct_with_an_unsupported_field_is_refused():
    class Mapped(msgspec.Struct):
        labels: dict[str, str]

    class Twice(msgspec.Struct):
        http: Http
        http_port: int

    class Reserved(msgspec.Struct):
        config: str

    with pytest.raises(TypeError, match="labels of Mapped: settings cannot be of DictType"):
        leaves(Mapped)
    with pytest.raises(TypeError, match=r"http_port of Twice and http\.port would both"):
        leaves(Twice)
    with pytest.raises(TypeError, match="config of Reserved and the settings file would both be"):
        leaves(Reserved)


text = st.text(min_size=1)
item = st.text(alphabet=st.characters(exclude_characters=","), min_size=1).filter(
    lambda part: part == part.strip()
)


@given(
    st.builds(
        Settings,
        bus=st.builds(
            Bus,
            url=text,
            token=st.none(),
            servers=st.lists(item).map(tuple),
            reconnect=st.integers(0, 10**6).map(Duration),
        ),
        http=st.builds(Http, host=text, port=st.integers(0, 65535)),
        root=text.filter(lambda path: "\0" not in path).map(Path),
        method=st.sampled_from(Method),
        level=st.sampled_from(["debug", "info"]),
        share=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
        workers=st.none() | st.integers(-(2**63), 2**63 - 1),
        dry=st.booleans(),
    )
)
def test_what_is_shown_is_read_back(settings: Settings):
    environ = {
        "SLUICE_BUS_URL": settings.bus.url,
        "SLUICE_BUS_SERVERS": show(settings.bus.servers),
        "SLUICE_BUS_RECONNECT": show(settings.bus.reconnect),
        "SLUICE_HTTP_HOST": settings.http.host,
        "SLUICE_HTTP_PORT": show(settings.http.port),
        "SLUICE_ROOT": show(settings.root),
        "SLUICE_METHOD": show(settings.method),
        "SLUICE_LEVEL": settings.level,
        "SLUICE_SHARE": show(settings.share),
        "SLUICE_WORKERS": show(settings.workers),
        "SLUICE_DRY": show(settings.dry),
    }
    assert load(Settings, environ=environ) == settings
