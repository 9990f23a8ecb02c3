"""A shard is read once, in order, from where reading stopped, and a loss is never silent."""

import random

import msgspec
import pytest
from botocore.exceptions import ClientError

from streamkit.errors import RetentionLost
from streamkit.progress.control import START, Cursor
from streamkit.stream.decode import parse_page
from streamkit.stream.reader import ShardReader
from streamkit.stream.sharing import SharedReads

GONE = "ResourceNotFoundException"
TRIMMED = "TrimmedDataAccessException"
EXPIRED = "ExpiredIteratorException"
HOUR = 3600
NOW = 1_800_000_000.0


class Clock:
    def time(self):
        return NOW

    def monotonic(self):
        return 0.0


def padded(number):
    return str(number).zfill(40)


def page(*numbers, last=False, age=60):
    records = [
        {
            "eventName": "INSERT",
            "eventID": f"e{number}",
            "dynamodb": {
                "Keys": {"pk": {"S": "a"}},
                "SequenceNumber": str(number),
                "ApproximateCreationDateTime": NOW - age,
            },
        }
        for number in numbers
    ]
    return {"Records": records} | ({} if last else {"NextShardIterator": "next"})


def error(code):
    return ClientError({"Error": {"Code": code}}, "GetRecords")


class Stream:
    """In place of the client: answers `GetRecords` with a script, and notes how it was opened."""

    def __init__(self, *script, opens=()):
        self.script, self.opens = list(script), list(opens)
        self.opened = []

    async def get_iterator(self, **where):
        self.opened.append((where["ShardIteratorType"], where.get("SequenceNumber")))
        answer = self.opens.pop(0) if self.opens else None
        if answer is not None:
            raise answer
        return f"iterator-{len(self.opened)}"

    async def get_records(self, iterator):
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return parse_page(msgspec.json.encode(answer))


def reader(stream, position=START, seen=0.0, founded=0.0, half_done=False, **options):
    trying = padded(9) if half_done else ""
    begin = Cursor("shard", position=position, seen=seen, trying=trying, **options)
    return ShardReader(stream, "arn", begin, Clock(), random.Random(0), founded)


async def positions(subject, reads):
    found = []
    for _ in range(reads):
        answer = await subject.read()
        found.append(None if answer is None else [int(r.sequence_number) for r in answer.records])
    return found


async def test_a_shard_never_read_is_opened_at_its_oldest_record():
    stream = Stream(page(1, 2))
    assert await positions(reader(stream), 1) == [[1, 2]]
    assert stream.opened == [("TRIM_HORIZON", None)]


async def test_an_expired_iterator_is_opened_again_after_the_last_record_read():
    stream = Stream(page(5, 6), page(), error("ExpiredIteratorException"), page(7))
    assert await positions(reader(stream, padded(4)), 4) == [[5, 6], [], None, [7]]
    assert stream.opened == [("AFTER_SEQUENCE_NUMBER", "4"), ("AFTER_SEQUENCE_NUMBER", "6")]


async def test_what_was_read_before_is_dropped_from_a_page_and_nothing_else():
    stream = Stream(page(5, 6), page(5, 6, 7), page(6, 7), page(8))
    assert await positions(reader(stream, padded(4)), 4) == [[5, 6], [7], [], [8]]


async def test_the_last_page_carries_its_records_and_ends_the_shard():
    subject = reader(Stream(*[page() for _ in range(8)], page(9, last=True)))
    assert (await positions(subject, 8), subject.ended) == ([[]] * 8, False)
    assert (await positions(subject, 1), subject.ended) == ([[9]], True)


async def test_a_position_trimmed_on_a_shard_not_seen_lately_is_a_loss():
    stream = Stream(opens=[error("TrimmedDataAccessException")])
    with pytest.raises(RetentionLost):
        await reader(stream, padded(4), seen=NOW - 25 * HOUR).read()


@pytest.mark.parametrize(
    ("hours", "lost"),
    [(1, False), (22.9, False), (23.1, True), (23.9, True), (24.1, True), (24.9, True)],
)
async def test_an_old_position_is_no_loss_if_its_shard_was_at_its_tip_23_hours_ago(hours, lost):
    stream = Stream(page(9), opens=[error("TrimmedDataAccessException")])
    subject = reader(stream, padded(4), seen=NOW - hours * HOUR, dated=NOW - 30 * HOUR)
    if lost:
        with pytest.raises(RetentionLost):
            await subject.read()
    else:
        assert await positions(subject, 1) == [[9]]
        assert stream.opened[-1] == ("TRIM_HORIZON", None)


async def test_a_recent_position_that_is_trimmed_is_a_possible_loss_wherever_it_is_noticed():
    known = {"seen": NOW - 60, "dated": NOW - 60}
    after = {"seen": NOW - 60, "dated": NOW - 30 * HOUR}
    for reads, subject in (
        (1, reader(Stream(opens=[error(TRIMMED)]), padded(4), **known)),
        (1, reader(Stream(error(TRIMMED)), padded(4), **known)),
        (2, reader(Stream(page(5), error(TRIMMED)), padded(4), **after)),
        (
            3,
            reader(
                Stream(page(5), error(EXPIRED), opens=[None, error(TRIMMED)]), padded(4), **after
            ),
        ),
        (1, reader(Stream(error(TRIMMED)), **known)),
        (11, reader(Stream(*[page()] * 10, error(TRIMMED)), founded=NOW - 60)),
    ):
        with pytest.raises(RetentionLost, match=r"possible loss.*early") as caught:
            await positions(subject, reads)
        assert (caught.value.certain, caught.value.until) == (False, NOW)


@pytest.mark.parametrize("pages", [0, 1, 2])
async def test_what_another_consumer_reads_from_the_horizon_on_is_no_way_past_a_trim(pages):
    stream = Stream(page(), page(9), opens=[*[None] * (pages > 0), error(TRIMMED)])
    shared = SharedReads(stream, Clock())
    other = reader(shared.join("arn", "shard", lambda: None))
    await positions(other, pages)
    mine = shared.join("arn", "shard", lambda: None)
    with pytest.raises(RetentionLost, match="early"):
        await reader(mine, padded(4), NOW - 60, dated=NOW - 60).read()


async def test_an_early_trim_that_was_settled_is_not_said_again():
    subject = reader(
        Stream(page(), page(9), opens=[error(TRIMMED)] * 2), padded(4), NOW - 60, dated=NOW - 60
    )
    with pytest.raises(RetentionLost) as caught:
        await subject.read()
    subject.resume(caught.value)
    assert (subject.dated, subject.seen) == (0, NOW - 60), "what is left may be read late"
    assert await positions(subject, 2) == [[], [9]]
    assert subject.dated == NOW - 60


async def test_an_early_trim_that_overtakes_a_reader_is_said_although_an_earlier_one_was_settled():
    subject = reader(Stream(page(9), error(TRIMMED)), padded(4), NOW - 60)
    await subject.read()
    with pytest.raises(RetentionLost, match="early"):
        await subject.read()


async def test_a_shard_never_read_for_longer_than_the_retention_is_a_loss():
    with pytest.raises(RetentionLost):
        await reader(Stream(page(9)), seen=NOW - 25 * HOUR).read()


async def test_a_shard_that_is_gone_is_a_loss():
    with pytest.raises(RetentionLost):
        await reader(Stream(opens=[error("ResourceNotFoundException")]), padded(4)).read()


@pytest.mark.parametrize("pages", [9, 10])
async def test_only_many_empty_pages_in_a_row_mean_the_tip(pages):
    subject = reader(Stream(page(5), *[page()] * pages))
    await positions(subject, pages + 1)
    assert subject.seen == (NOW if pages == 10 else NOW - 60)


# -- starts and losses -----------------------------------------------------------------------------


async def test_records_before_the_start_are_dropped_and_the_position_goes_past_them():
    old, mixed = page(1, 2, age=2 * HOUR), page(3, age=60)
    subject = reader(Stream(old, mixed), since=NOW - HOUR)
    assert await positions(subject, 2) == [None, [3]]
    assert subject.position == padded(3)


async def test_the_last_page_ends_the_shard_also_if_all_of_it_is_before_the_start():
    subject = reader(Stream(page(1, last=True, age=2 * HOUR)), since=NOW - HOUR)
    assert (await positions(subject, 1), subject.ended) == ([[]], True)


async def test_a_record_of_the_second_of_the_start_is_taken_in():
    mixed = page(1, age=61)
    mixed["Records"] += page(2, age=60)["Records"]
    assert await positions(reader(Stream(mixed), since=NOW - 60), 1) == [[2]]


@pytest.mark.parametrize(("hours", "lost"), [(23, False), (25, True)])
async def test_what_a_shard_owes_from_the_start_on_is_lost_once_it_is_trimmed(hours, lost):
    for known in ({"since": NOW - hours * HOUR}, {"founded": NOW - hours * HOUR}):
        subject = reader(Stream(page(9)), **known)
        if lost:
            with pytest.raises(RetentionLost):
                await subject.read()
        else:
            assert await positions(subject, 1) == [[9]]


async def test_the_founding_says_nothing_of_a_shard_that_has_a_position():
    stream = Stream(opens=[error(TRIMMED)])
    with pytest.raises(RetentionLost):
        await reader(stream, padded(4), founded=NOW - HOUR).read()


async def test_an_iterator_that_the_horizon_overtook_is_opened_again_if_nothing_is_lost():
    stream = Stream(error(TRIMMED), page(9))
    assert await positions(reader(stream, seen=NOW - HOUR), 2) == [None, [9]]
    with pytest.raises(RetentionLost):
        await reader(Stream(error(TRIMMED)), padded(4), seen=NOW - 25 * HOUR).read()


async def test_a_shard_that_was_gone_before_the_consumer_began_is_passed_over():
    subject = reader(Stream(opens=[error(GONE)] * 4), founded=NOW - HOUR)
    assert await positions(subject, 4) == [None, None, None, []]
    assert subject.ended


@pytest.mark.parametrize("known", ["founded", "since", "seen"])
async def test_first_records_may_be_trimmed_though_a_clock_is_ten_minutes_behind(known):
    """No call says that the horizon has passed them: the age alone does, by this clock."""
    subject = reader(Stream(page(9)), **{known: NOW - 24 * HOUR + 600 - 60})
    with pytest.raises(RetentionLost, match="before it was ever read"):
        await subject.read()
    kept = reader(Stream(page(9)), **{known: NOW - 23.5 * HOUR})
    assert await positions(kept, 1) == [[9]]


async def test_a_shard_that_is_new_to_the_service_too_is_not_passed_over():
    subject = reader(Stream(page(1), opens=[error(GONE)] * 3), founded=NOW - HOUR)
    assert await positions(subject, 4) == [None, None, None, [1]]


async def test_a_new_shard_is_gone_only_if_the_service_says_so_again_and_again():
    """One answer that does not know it yet would give up all that it will ever have."""
    long_ago, lately = NOW - 50 * HOUR, NOW - 10
    subject = reader(Stream(page(1), opens=[error(GONE)] * 3), seen=lately, founded=long_ago)
    assert await positions(subject, 4) == [None, None, None, [1]]
    gone = reader(Stream(opens=[error(GONE)] * 5), seen=lately, founded=long_ago)
    assert await positions(gone, 3) == [None, None, None]
    for _ in range(2):
        with pytest.raises(RetentionLost) as caught:
            await gone.read()
    assert caught.value.gone


async def test_a_loss_is_not_certain_once_the_change_that_was_begun_is_read():
    stream = Stream(page(5), error("ResourceNotFoundException"))
    subject = reader(stream, padded(4), NOW - 30 * HOUR, half_done=True)
    await subject.read()
    with pytest.raises(RetentionLost) as caught:
        await subject.read()
    assert (caught.value.certain, caught.value.gone) == (False, True)


@pytest.mark.parametrize("half_done", [True, False])
async def test_a_loss_is_certain_only_if_a_change_is_known_to_be_gone(half_done):
    stream = Stream(opens=[error(GONE)])
    with pytest.raises(RetentionLost) as caught:
        await reader(stream, padded(4), NOW - 30 * HOUR, half_done=half_done).read()
    lost = caught.value
    assert (lost.certain, lost.gone) == (half_done, True)
    assert (lost.shard, lost.after, lost.since) == ("shard", padded(4), NOW - 30 * HOUR)
    assert ("possible" in str(lost)) is not half_done


async def test_a_loss_of_a_shard_that_is_there_is_not_certain_though_a_change_was_begun():
    """The change that was begun may be the oldest that the shard still has."""
    stream = Stream(page(9), opens=[error(TRIMMED)])
    with pytest.raises(RetentionLost) as caught:
        await reader(stream, padded(4), NOW - 30 * HOUR, half_done=True).read()
    assert (caught.value.certain, caught.value.gone) == (False, False)


async def test_a_loss_is_raised_by_every_read_until_it_is_settled():
    subject = reader(Stream(page(9), opens=[error(TRIMMED)] * 3), padded(4), NOW - 30 * HOUR)
    for _ in range(2):
        with pytest.raises(RetentionLost) as caught:
            await subject.read()
    subject.resume(caught.value)
    assert await positions(subject, 1) == [[9]]
    assert subject.pages.opened[-1] == ("TRIM_HORIZON", None)


async def test_a_shard_that_is_gone_is_over_once_its_loss_is_settled():
    subject = reader(Stream(opens=[error(GONE)]), padded(4), NOW - 30 * HOUR)
    with pytest.raises(RetentionLost) as caught:
        await subject.read()
    subject.resume(caught.value)
    assert subject.ended


async def test_a_page_ends_the_pauses_that_errors_before_it_have_made_longer():
    slow = error("ProvisionedThroughputExceededException")
    subject = reader(Stream(*[slow] * 6, page(1), slow))
    pauses = []
    for _ in range(8):
        await subject.read()
        pauses.append(subject.wait)
    assert pauses[5] > 3
    assert pauses[6] == 0
    assert 0 < pauses[7] < 0.5


async def test_a_page_with_records_begins_the_count_of_empty_ones_anew():
    subject = reader(Stream(*[page()] * 9, page(1, age=HOUR), *[page()] * 9))
    for _ in range(19):
        await subject.read()
    assert subject.seen == NOW - HOUR


async def test_a_shard_that_is_gone_and_whose_parent_was_read_is_a_loss():
    stream = Stream(opens=[error(GONE)] * 9)
    subject = reader(stream, seen=NOW - 60, founded=NOW - 90)
    with pytest.raises(RetentionLost):
        await positions(subject, 9)
