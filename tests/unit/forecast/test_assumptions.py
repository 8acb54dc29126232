from libs.forecast import DefaultAssumptions
from libs.forecast.world import DurationHistory, FleetProfile, Lognormal


def test_without_a_history_all_of_it_is_assumed() -> None:
    assumed, rates = DefaultAssumptions(FleetProfile(load=Lognormal(90.0, 300.0))).basis
    assert assumed.startswith("Assumed, not seen in this fleet: a driver loads 2 min (95 %: 5 min)")
    assert "How often things go wrong is assumed" in rates


def test_enough_observations_are_described_with_their_number() -> None:
    history = DurationHistory(load=(60.0, 120.0) * 20, validation=(10.0,) * 29)
    seen, assumed, _ = DefaultAssumptions(history=history).basis
    assert seen == "Seen in this fleet: a driver loads 2 min (95 %: 2 min), of 40 cases."
    assert "a driver loads" not in assumed
    assert "a validation 45 s" in assumed


def test_as_many_as_are_enough_are_enough() -> None:
    for samples, words in {(60.0,): "Assumed", (60.0, 60.0): "Seen"}.items():
        first, *_ = DefaultAssumptions(history=DurationHistory(min_samples=2, load=samples)).basis
        assert first.startswith(words)


def test_the_same_seed_is_the_same_world() -> None:
    usual = DefaultAssumptions()
    one, again, other = (usual.world(seed) for seed in (1, 1, 2))
    asked = ("node-1", "label", 0)
    assert one.load(*asked) == again.load(*asked)
    assert one.load(*asked) != other.load(*asked)


def test_worlds_use_the_observed_durations() -> None:
    world = DefaultAssumptions(history=DurationHistory(load=(500.0, 501.0) * 20)).world(1)
    times = [world.load(f"node-{number}", "label", 0) for number in range(20)]
    assert all(500.0 <= (end.after or 0.0) <= 501.0 for end in times if not end.exit_code)
