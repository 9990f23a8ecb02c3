"""Shards of stream and archive are read in their order, and what looks simpler breaks: rows L."""

import pytest

from streamkit.operate.past import shards as module
from streamkit.stream.lineage import Shard
from streamkit.stream.listing import Listing
from streamkit.testing.loop import run_virtually
from tests.models.archive_lineage import BOUNDS, NAIVE, STRANDING, Model, Rules, all_read, helps
from tests.models.explorer import explore, stuck


@pytest.fixture(scope="module")
def found(request):
    """All worlds within a bound; tests of one bound run one after the other."""
    return explore(Model(Rules(), BOUNDS[request.param]))


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_no_schedule_of_listers_and_shards_goes_wrong(found):
    assert found.broken == {}
    assert len(found.worlds) > 1000


@pytest.mark.parametrize("found", BOUNDS, indirect=True)
def test_every_shard_is_read_or_named_as_lost_in_the_end(found):
    assert stuck(found, all_read, helps) is None


@pytest.mark.parametrize("name", NAIVE)
def test_a_way_to_list_that_looks_simpler_breaks(name):
    rules, bound, breaks = NAIVE[name]
    assert breaks in explore(Model(rules, bound), until=breaks).broken


@pytest.mark.parametrize("name", STRANDING)
def test_a_way_to_list_that_looks_simpler_leaves_a_shard_unread(name):
    assert stuck(explore(Model(*STRANDING[name])), all_read, helps) is not None


def test_l3_a_command_that_reads_the_past_overlooks_no_shard_that_leaves_the_stream(monkeypatch):
    """It is archived, and leaves, between the two lists."""
    kept = []

    class Archive:
        async def shards(self):
            return [Shard(name, parent) for name, parent in kept]

    async def listed(*_):
        found = Listing((Shard("P", None), Shard("C", "P")), enabled=True)
        kept.append(("P", None))
        return found

    async def no_cursor(_):
        return {}

    monkeypatch.setattr(module, "list_shards", listed)
    monkeypatch.setattr(module, "every_cursor", no_cursor)
    past = module.PastShards(None, "", Archive(), None, 0.0)
    assert list(run_virtually(past.listed)) == ["P", "C"]
