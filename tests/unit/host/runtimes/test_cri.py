import pytest

from libs.host.runtimes.cri import Answer, Malformed, read


def field(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes((number << 3 | 2, len(value))) + value


def version(name: bytes) -> bytes:
    return field(1, b"0.1.0") + field(2, name) + field(3, b"v2.4.2")


def info(config: bytes) -> bytes:
    return field(2, field(1, b"config") + field(2, config))


HANDLERS = field(3, b"\x12\x02\x08\x01") + field(3, field(1, b"runc")) + field(3, field(1, b"gpu"))


def test_containerd_2_lists_its_handlers() -> None:
    status = b"\x0a\x00" + info(b'{"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}') + HANDLERS
    expected = Answer(name="containerd", version="v2.4.2", handlers=("gpu", "runc"), reads_cdi=True)
    assert read(version(b"containerd"), status) == expected


@pytest.mark.parametrize(
    ("cdi", "reads"),
    [
        ('"enableCDI":true,"cdiSpecDirs":["/run/cdi/",3]', True),
        ('"enableCDI":false,"cdiSpecDirs":["/run/cdi"]', False),
        ('"enableCDI":true,"cdiSpecDirs":["/opt"]', False),
        ('"cdiSpecDirs":3', False),
        ('"a":1', False),
    ],
)
def test_containerd_1_7_says_its_handlers_in_its_configuration(cdi: str, reads: bool) -> None:
    status = info(f'{{"containerd":{{"runtimes":{{"runc":{{}}}}}},{cdi}}}'.encode())
    expected = Answer(name="containerd", version="v2.4.2", handlers=("runc",), reads_cdi=reads)
    assert read(version(b"containerd"), status) == expected


def test_crio_reads_cdi_specs_always() -> None:
    answer = read(version(b"cri-o"), info(b'{"sandboxImage":"pause"}') + HANDLERS)
    found = (answer.name, answer.handlers, answer.reads_cdi)
    assert found == ("cri-o", ("gpu", "runc"), True)


@pytest.mark.parametrize(
    "config", [b"[", b"\xff", b'{"containerd":3}', b'{"containerd":{"runtimes":[]}}']
)
def test_a_configuration_in_another_form_says_nothing(config: bytes) -> None:
    assert read(version(b"containerd"), info(config)) == Answer(name="containerd", version="v2.4.2")


@pytest.mark.parametrize("data", [b"\x12\x05a", b"\x12", b"\x80" * 11, b"\x0d\0\0\0\0"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data, b"")
