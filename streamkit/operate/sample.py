"""Find what is wrong with items that are in a table already, before a worker reads them.

In: an app, and the first items of a scan of its table that are not streamkit's own. Out: warnings:
items that could be of several entities, items that do not fit theirs, and items whose key and
fields disagree. A warning shows nothing of an item but a hash of its key.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from streamkit.app import App
from streamkit.aws import Aws, AwsError, code_of
from streamkit.core.matching import Matcher
from streamkit.core.overlaps import most_specific
from streamkit.entity import spec_of
from streamkit.errors import DecodeError
from streamkit.kinds.aggregate.aggregate import stored_as
from streamkit.kinds.finding import Finding
from streamkit.migrate.book.discovery import DiscoveryError, discover
from streamkit.model.codec import key_digest
from streamkit.model.copies import COPY
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_ATTRIBUTE, Wire, is_own, item_ref
from streamkit.progress.scan.pages import Reply, ScanPages
from streamkit.progress.scan.segment import Segment
from streamkit.stream.decode import ImageDecoder
from streamkit.stream.decode.keyed import trouble_of_key

SAMPLE = 200
"""At most this many items of the application are looked at."""
PAGE, PAGES = 500, 20
"""The items of one request, and how many requests are sent to find a sample: after a rebuild nearly
all items of a small table are streamkit's own.
"""


_OF_BOTH = (
    "have keys of the shapes of both: begin them with different prefixes, or name the attribute"
    " that says an item's type: App(type_attribute=...)"
)


@dataclass(frozen=True, slots=True)
class SampleFindings:
    """What is wrong with a sample: `looked_at` items of the `scanned` are not streamkit's own."""

    findings: tuple[Finding, ...]
    looked_at: int = 0
    scanned: int = 0


async def sample_findings(app: App, aws: Aws, schema: TableSchema) -> SampleFindings:
    """Read pages until there are enough items of the application; return what is wrong with them.

    If all pages that may be read hold hardly any, it is not known whether an item fits an entity.
    """
    items: list[dict[str, Wire]] = []
    read: list[int] = []
    segment = Segment(0, 1)

    async def visit(segment: Segment, reply: Reply) -> None:
        read.append(reply["ScannedCount"])
        items.extend(item for item in reply["Items"] if not is_own(schema, item))
        if len(items) >= SAMPLE or len(read) == PAGES:
            segment.stopping.set()
        await segment.advance(reply.get("LastEvaluatedKey"))

    pages = ScanPages(aws.dynamodb.scan, schema.name, PAGE, more={"ConsistentRead": False})
    try:
        await pages.visit(segment, visit)
    except AwsError as error:
        text = f"the items of {schema.name} were not looked at: Scan is refused ({code_of(error)})"
        return SampleFindings((Finding("warning", text),))
    shown = items[:SAMPLE]
    tells = segment.finished or len(shown) == SAMPLE
    return SampleFindings(
        tuple(odd_items(app, schema, shown, tells_none=tells)), len(shown), sum(read)
    )


def odd_items(
    app: App,
    schema: TableSchema,
    items: Sequence[Mapping[str, Wire]],
    *,
    tells_none: bool = True,
) -> list[Finding]:
    """Return what is wrong with items: one finding of each kind, with the number of its items.

    That none belongs to an entity is said if they are all items of the table, or a good sample.
    """
    matchers = {entity: Matcher(entity, schema) for entity in app.known}
    groups = [Matcher(stored_as(aggregate), schema) for aggregate in app.aggregates]
    decoders = {entity: ImageDecoder(entity, schema) for entity in app.known}
    total: dict[str, int] = defaultdict(int)
    odd: dict[tuple[str, str], list[str]] = defaultdict(list)
    any_fits = False
    for item in items:
        fits = [entity for entity, matcher in matchers.items() if matcher.matches(item)]
        found = list(most_specific(fits, has_sort_key=schema.sk is not None))
        any_fits = any_fits or bool(found) or any(group.matches(item) for group in groups)
        if not found or COPY in item:
            continue
        ref = item_ref(schema, item)
        names = " and ".join(entity.__name__ for entity in found)
        total[names] += 1
        if len(found) > 1:
            text: str | None = _OF_BOTH
        else:
            text = _trouble(decoders[found[0]], item, schema)
        if text is not None:
            odd[names, text].append(key_digest(ref.pk[1], *(ref.sk or ())[1:]))
    if tells_none and app.handlers and items and not any_fits:
        if any(mover.matches(item) for mover in _migrated(app, schema) for item in items):
            return []  # as long as all items are on one side of a migration
        return [Finding("warning", _of_none(app, len(items)))]
    return [
        Finding(
            "warning",
            f"{len(keys)} of {total[names]} items of {names} that were looked at {text}"
            f" (hash of a key: {keys[0]})",
        )
        for (names, text), keys in odd.items()
    ]


def _migrated(app: App, schema: TableSchema) -> list[Matcher]:
    """Return what tells the items of entities that only the app's migrations read or write."""
    with suppress(DiscoveryError):  # `streamkit migrate check` reports it
        discover(app.head)
    entities = dict.fromkeys(
        entity
        for one in app.head.migrations.values()
        for entity in (*one.sources, one.target)
        if entity is not None
    )
    return [Matcher(entity, schema) for entity in entities]


def _of_none(app: App, looked_at: int) -> str:
    entities = sorted({handler.entity for handler in app.handlers}, key=lambda one: one.__name__)
    specs = [spec_of(entity) for entity in entities]
    keys = "; ".join(
        f"{spec.declaration}: {' / '.join(t.text for t in (spec.pk, spec.sk) if t)}"
        for spec in specs
    )
    return (
        f"none of the {looked_at} items that were looked at belongs to an entity of the app:"
        f" compare its templates with the keys of your items, letter by letter ({keys})"
    )


def _trouble(
    decoder: ImageDecoder[Any], item: Mapping[str, Wire], schema: TableSchema
) -> str | None:
    shown = {name: v for name, v in item.items() if not name.startswith(CONTROL_ATTRIBUTE)}
    try:
        entity = decoder.decode_item(shown)
    except DecodeError as error:
        return f"do not fit it, and their changes would be parked: {error}"
    return trouble_of_key(entity, schema)
