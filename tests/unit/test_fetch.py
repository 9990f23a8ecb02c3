"""Many items are read by their keys, each once, or page by page, whatever the service leaves out."""

import anyio
import pytest
from botocore.exceptions import ClientError

from streamkit.model.schema import TableSchema
from streamkit.progress.actions import ItemRef
from streamkit.progress.fetch import fetch_all, fetch_by_ref, pages_of
from streamkit.testing.loop import run_virtually

SCHEMA = TableSchema("t", "pk", "sk", "S", "N", {})


def key(number):
    return {"pk": {"S": "a"}, "sk": {"N": str(number)}}


class Client:
    """Serves so many keys of each call, and none of the first `throttled` calls."""

    def __init__(self, *numbers, serves=100, throttled=0, refuses=()):
        self.there, self.serves, self.throttled = {*numbers}, serves, throttled
        self.asked, self.refuses = [], list(refuses)

    async def batch_get_item(self, *, RequestItems):
        ((table, request),) = RequestItems.items()
        assert table == "t"
        self.asked.append((len(request["Keys"]), request["ConsistentRead"]))
        if self.refuses:
            raise ClientError({"Error": {"Code": self.refuses.pop()}}, "BatchGetItem")
        serves = 0 if len(self.asked) <= self.throttled else self.serves
        keys, left = request["Keys"][:serves], request["Keys"][serves:]
        found = [{**one, "name": {"S": "x"}} for one in keys if int(one["sk"]["N"]) in self.there]
        unprocessed = {"t": {"Keys": left, "ConsistentRead": True}} if left else {}
        return {"Responses": {"t": found} if found else {}, "UnprocessedKeys": unprocessed}


def fetched(client, count, **how):
    """Fetch the items 0 … count; return their numbers, and how many seconds it took."""

    async def main():
        found = await fetch_all(client, "t", [key(number) for number in range(count)], **how)
        return [int(item["sk"]["N"]) for item in found], anyio.current_time()

    return run_virtually(main)


def test_each_item_that_is_there_is_found_once_however_few_a_reply_has_room_for():
    client = Client(*range(0, 250, 2), serves=40)
    found, seconds = fetched(client, 250)
    assert sorted(found) == [*range(0, 250, 2)]
    assert max(keys for keys, _ in client.asked) == 100
    assert seconds == 0.0


def test_a_read_of_which_nothing_was_served_is_repeated_after_a_pause():
    client = Client(1, 2, throttled=3)
    found, seconds = fetched(client, 3)
    assert (found, seconds) == ([1, 2], pytest.approx(0.6))


@pytest.mark.parametrize("fresh", [True, False])
def test_items_are_read_strongly_consistent_unless_they_need_not_be(fresh):
    client = Client(1)
    fetched(client, 2, fresh=fresh)
    assert client.asked == [(2, fresh)]


def test_a_throttled_read_is_repeated_unless_the_caller_has_no_patience():
    slow = "ProvisionedThroughputExceededException"
    assert fetched(Client(1, refuses=[slow, slow]), 2)[0] == [1]
    with pytest.raises(ClientError, match=slow):
        fetched(Client(1, refuses=[slow]), 2, patient=False)


def test_nothing_is_asked_for_no_keys():
    client = Client()
    assert fetched(client, 0)[0] == []
    assert client.asked == []


def test_items_are_named_by_their_key_and_asked_for_by_it_alone():
    client = Client(1)
    wanted = [{**key(1), "other": {"S": "left out"}}, key(2)]
    found = run_virtually(lambda: fetch_by_ref(client, SCHEMA, wanted))
    assert found == {ItemRef("t", ("S", "a"), ("N", "1")): {**key(1), "name": {"S": "x"}}}


def test_a_scan_goes_on_until_there_is_no_further_key_though_a_page_may_be_empty():
    pages = [{"Items": [1], "LastEvaluatedKey": "k1"}, {"Items": [], "LastEvaluatedKey": "k2"}, {}]
    asked = []

    async def scan(**request):
        asked.append(request.get("ExclusiveStartKey"))
        return pages[len(asked) - 1]

    async def main():
        return [page async for page in pages_of(scan, TableName="t")]

    assert run_virtually(main) == pages
    assert asked == [None, "k1", "k2"]
