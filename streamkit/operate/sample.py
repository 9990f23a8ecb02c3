"""Find what is wrong with items that are in a table already, before a worker reads them.

In: an app, and the first items of a scan of its table. Out: warnings: items that could be of
several entities, items that do not fit theirs, and items whose key and fields disagree. A warning
shows nothing of an item but a hash of its key.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from streamkit.app import App
from streamkit.aws import Aws, AwsError, code_of
from streamkit.core.matching import Matcher
from streamkit.core.overlaps import most_specific
from streamkit.entity import spec_of
from streamkit.errors import DecodeError
from streamkit.kinds.finding import Finding
from streamkit.model.codec import key_digest
from streamkit.model.copies import COPY
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_ATTRIBUTE, CONTROL_PREFIX, Wire, item_ref
from streamkit.stream.decode import ImageDecoder
from streamkit.stream.decode.keyed import trouble_of_key

SAMPLE = 200
"""At most this many items are read: one request."""


_OF_BOTH = (
    "have keys of the shapes of both: begin them with different prefixes, or name the attribute"
    " that says an item's type: App(type_attribute=...)"
)


async def sample_findings(app: App, aws: Aws, schema: TableSchema) -> tuple[int, list[Finding]]:
    """Read a few items; return how many are the application's, and what is wrong with them."""
    try:
        reply = await aws.dynamodb.scan(TableName=schema.name, Limit=SAMPLE)
    except AwsError as error:
        text = f"the items of {schema.name} were not looked at: Scan is refused ({code_of(error)})"
        return 0, [Finding("warning", text)]
    items = [item for item in reply["Items"] if not _is_control(item, schema)]
    return len(items), odd_items(app, schema, items)


def odd_items(app: App, schema: TableSchema, items: Sequence[Mapping[str, Wire]]) -> list[Finding]:
    """Return what is wrong with items: one finding of each kind, with the number of its items."""
    matchers = {entity: Matcher(entity, schema) for entity in app.known}
    decoders = {entity: ImageDecoder(entity, schema) for entity in app.known}
    total: dict[str, int] = defaultdict(int)
    odd: dict[tuple[str, str], list[str]] = defaultdict(list)
    for item in items:
        fits = [entity for entity, matcher in matchers.items() if matcher.matches(item)]
        found = list(most_specific(fits, has_sort_key=schema.sk is not None))
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
    if app.handlers and items and not total:
        return [Finding("warning", _of_none(app, len(items)))]
    return [
        Finding(
            "warning",
            f"{len(keys)} of {total[names]} items of {names} that were looked at {text}"
            f" (hash of a key: {keys[0]})",
        )
        for (names, text), keys in odd.items()
    ]


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


def _is_control(item: Mapping[str, Wire], schema: TableSchema) -> bool:
    return str(item[schema.pk].get("S", "")).startswith(CONTROL_PREFIX)


def _trouble(
    decoder: ImageDecoder[Any], item: Mapping[str, Wire], schema: TableSchema
) -> str | None:
    shown = {name: v for name, v in item.items() if not name.startswith(CONTROL_ATTRIBUTE)}
    try:
        entity = decoder.decode_item(shown)
    except DecodeError as error:
        return f"do not fit it, and their changes would be parked: {error}"
    return trouble_of_key(entity, schema)
