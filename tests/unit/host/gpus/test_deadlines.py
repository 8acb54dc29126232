"""For how long a GPU has owed an answer, in seconds that count against it."""

from libs.host.gpus.deadlines import LONGEST_LOOK, Deadlines, Patience


def test_the_seconds_count_since_the_question_and_end_with_the_answer() -> None:
    patience = Patience()
    patience.look({1}, began=10.0, now=13.0, runs=True)
    assert (patience.owed(1), patience.owed(0)) == (3.0, 0.0)
    patience.look({0, 1}, began=13.5, now=14.0, runs=True)
    assert (patience.owed(1), patience.owed(0)) == (4.0, 0.5)
    patience.look({0}, began=14.0, now=15.0, runs=True)
    assert (patience.owed(1), patience.owed(0)) == (0.0, 1.5)


def test_a_process_that_did_not_run_for_an_hour_counts_as_one_look() -> None:
    patience = Patience()
    patience.look({0}, began=0.0, now=3600.0, runs=True)
    assert patience.owed(0) == LONGEST_LOOK < Deadlines().hung


def test_while_the_nvml_process_does_not_run_a_quarter_counts() -> None:
    patience = Patience()
    for second in range(1, 61):
        patience.look({0}, began=0.0, now=float(second), runs=False)
    assert patience.owed(0) == 15.0
