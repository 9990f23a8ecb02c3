"""Stream settings: the behaviour of streams that a test may ask for.

AWS allows all of this behaviour, and some of it is seldom seen there: late children, parents listed
as open, empty pages, long sequence numbers. By default a stream has none of it, and limits how
often it is described. How often shards are read is limited only when a test asks for it.
"""

from dataclasses import dataclass

_DAY = 86_400.0


@dataclass(slots=True)
class StreamSettings:
    """The behaviour of an engine's streams. Any field may be changed at any time.

    Attributes:
        retention: seconds until a record is trimmed.
        linger: seconds for which an empty closed shard stays listed after that.
        roll_after: seconds until an open shard is replaced by a child; None for never.
        iterator_lifetime: seconds until an iterator expires.
        publish_delay: seconds until a record can be read.
        sequence_digits: 21 to 40; None for a random choice in each unrelated shard. Holds for
            streams made later.
        spread_collections: the sort key counts in the choice of a shard, so items of one partition
            key live in several shards. Holds for streams made later.
        empty_page_chance: how likely a page is empty although records follow.
        end_with_records_chance: how likely the last records of a closed shard come without a next
            iterator; otherwise an empty page without one follows.
        children_hidden: seconds until a child is listed.
        parents_open: seconds for which a closed parent is still listed as open.
        ignore_shard_filter: `ShardFilter` is accepted and does nothing.
        unordered_listing: shards are listed in an order without meaning.
        listing_page: shards in a page of `DescribeStream`, at most 100.
        describe_rate: calls of `DescribeStream` a second that a stream allows; None for any number.
            AWS allows 10.
        read_rate: calls of `GetRecords` a second that a shard allows; None for any number. AWS
            documents none; its users measured 5.
        readers: how many readers may read a shard within a second; None for any number. AWS says
            2. A reader here continues from one answer of `GetShardIterator`, so a process that
            asks twice counts twice.
    """

    retention: float = _DAY
    linger: float = 0.0
    roll_after: float | None = 4 * 3600.0
    iterator_lifetime: float = 900.0
    publish_delay: float = 0.0
    sequence_digits: int | None = None
    spread_collections: bool = False
    empty_page_chance: float = 0.0
    end_with_records_chance: float = 0.5
    children_hidden: float = 0.0
    parents_open: float = 0.0
    ignore_shard_filter: bool = False
    unordered_listing: bool = False
    listing_page: int = 100
    describe_rate: int | None = 10
    read_rate: int | None = None
    readers: int | None = None
