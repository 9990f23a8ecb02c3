"""One seed is one run: what a seed has found can be played again, call by call."""

from streamkit.testing.migrations import migrate
from tests.simulation.migrating import OldOrder, Order, Orders, old_then_new, rekey


def test_a_run_makes_the_same_calls_whenever_it_is_played_again():
    def calls():
        orders = Orders(old_then_new(OldOrder, Order))
        ran = migrate(rekey(), "0001", orders, seed=3, acts=20, worker=True)
        assert ran.met["crash"]
        assert ran.met["freeze"]
        return [(call.at, call.operation, call.payload) for call in ran.world.calls]

    first = calls()
    assert len(first) > 1000
    assert calls() == first
