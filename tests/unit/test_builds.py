"""Builds of aggregates: what one leaves to be swept."""

from streamkit.model.builds import Build, next_build, retired


def test_a_build_that_is_over_leaves_its_ledger_to_the_next_one_until_it_is_swept():
    counting = Build(3, "counting", segments=4, past=((2, 1),))
    assert next_build(counting, 5, 1, 0).past == ((2, 1), (3, 4))
    swept = Build(3, "live", segments=4, past=())
    assert next_build(swept, 5, 1, 0).past == ()
    assert retired(swept) == Build(3, "live")
