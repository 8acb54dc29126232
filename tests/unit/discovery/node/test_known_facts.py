"""What was seen stays until it was missed often enough."""

from libs.contracts.facts import Facts, Kernel, PciDevice
from services.discovery.node.agent import MAX_MISSED, KnownFacts


def device(address: str, driver: str = "") -> PciDevice:
    return PciDevice(
        address=address, vendor="10de", device="2330", device_class="0302", driver=driver
    )


A, B = device("a"), device("b")


def known(*looks: Facts) -> Facts:
    state = KnownFacts()
    for look in looks:
        state = state.after(look)
    return state.facts


def test_what_is_seen_first_is_known() -> None:
    seen = Facts(pci=(A, B), kernel=Kernel(release="6.8"))
    assert known(seen) == seen


def test_a_section_that_was_not_seen_stays() -> None:
    facts = known(Facts(pci=(A,), kernel=Kernel(release="6.8")), Facts())
    assert facts == Facts(pci=(A,), kernel=Kernel(release="6.8"))


def test_a_section_that_is_seen_anew_is_taken() -> None:
    looks = (Facts(kernel=Kernel(release="6.8")), Facts(kernel=Kernel(release="6.9")))
    assert known(*looks).kernel == Kernel(release="6.9")


def test_an_error_is_of_its_look_alone() -> None:
    assert known(Facts(nvml_error="hung"), Facts()).nvml_error == ""


def test_a_device_goes_when_it_was_missed_often_enough() -> None:
    both, one = Facts(pci=(A, B)), Facts(pci=(A,))
    assert known(both, *[one] * (MAX_MISSED - 1)).pci == (A, B)
    assert known(both, *[one] * MAX_MISSED).pci == (A,)


def test_all_devices_go_only_as_slowly() -> None:
    both, none = Facts(pci=(A, B)), Facts(pci=())
    assert known(both, none).pci == (A, B)
    assert known(both, *[none] * MAX_MISSED).pci == ()


def test_a_device_that_comes_back_is_counted_anew() -> None:
    both, one = Facts(pci=(A, B)), Facts(pci=(A,))
    assert known(both, one, both, *[one] * (MAX_MISSED - 1)).pci == (A, B)


def test_a_bus_that_was_not_seen_counts_for_nothing() -> None:
    both, one = Facts(pci=(A, B)), Facts(pci=(A,))
    assert known(both, one, Facts(), Facts(), one).pci == (A, B)


def test_a_device_is_as_it_was_seen_last() -> None:
    assert known(Facts(pci=(A,)), Facts(pci=(device("a", "nvidia"),))).pci == (
        device("a", "nvidia"),
    )


def test_devices_are_in_order_of_their_addresses() -> None:
    assert known(Facts(pci=(B,)), Facts(pci=(A,))).pci == (A, B)
