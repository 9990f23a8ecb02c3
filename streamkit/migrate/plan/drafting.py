"""Compare entities with a sample of the table, to write the first draft of a migration.

An item is as it should be if a put of today would store it as it is. What differs is counted by
attribute: it is missing, has another type, or another value (as when the template of an index has
changed); also items that the entity cannot read, and items under another key than their fields
build.

In: an app, its entities, and a sample. Out: an `EntityDraft` for each entity; nothing is written.
On failure: `ConfigurationError`, if the table may not be read.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.matching import Matcher
from streamkit.core.tables import survey
from streamkit.entity import Entity, spec_of
from streamkit.errors import USER_ERRORS
from streamkit.kinds.aggregate.aggregate import stored_as
from streamkit.kinds.migration import Migration, MigrationOptions, Mode
from streamkit.kinds.migration_function import read_migration
from streamkit.migrate.items.rewrites import Image, plain
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.run.sampling import Sample, Wanted, sample_of
from streamkit.migrate.sending.attempts import describe
from streamkit.model.codec import encode
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire, is_own
from streamkit.stream.decode.keyed import ANOTHER_KEY, trouble_of_key

_LARGER = (1, 8, 64)
"""How much larger than asked for a sample becomes: after a rebuild nearly all items of a small
table are streamkit's own."""


@dataclass
class EntityDraft:
    """What items of an entity in a sample lack, in words, each with its number of items.

    `notes` are of the table. `changes` says that items change in their places, `moves` that some
    are to get another key. Of the items that were `scanned`, `looked_at` are not streamkit's own,
    and `items` are the entity's. Those in `of_none` belong to no entity, by what they say is their
    type; "" where they say none.
    """

    entity: type[Entity]
    items: int = 0
    found: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    changes: bool = False
    moves: bool = False
    looked_at: int = 0
    scanned: int = 0
    of_none: Counter[str] = field(default_factory=Counter)

    @property
    def lines(self) -> list[str]:
        """The findings, the most frequent first."""
        counts = self.found.most_common()
        return [*self.notes, *(f"{count} of {self.items} items: {text}" for text, count in counts)]

    @property
    def mode(self) -> Mode:
        """The mode of the draft: a move leaves items alone whose key is right, so it comes last."""
        return "rekey" if self.moves and not self.changes else "in_place"

    def add(self, transform: Transform, item: dict[str, Wire], schema: TableSchema) -> None:
        """Compare one more item with what a put of today would store."""
        self.items += 1
        image = plain(item)
        try:
            rewrite = transform.of(image)
            trouble = trouble_of_key(transform.entity(item), schema)
        except USER_ERRORS as error:  # the application's model may raise anything
            self.found[f"cannot be read as {self.entity.__name__}: {describe(error)}"] += 1
            return
        if trouble == ANOTHER_KEY:
            self.moves = True
            self.found["the key is another one than the fields build (mode rekey)"] += 1
        elif trouble is not None:
            self.found[trouble] += 1
        self.changes |= rewrite.changes_item
        for name, value in rewrite.sets.items():
            self.found[_difference(name, value, image)] += 1
        for name in rewrite.removes:
            self.found[f"{name} is there, and would not be stored"] += 1


async def compare_entities(
    app: App,
    aws: Aws,
    entities: Sequence[type[Entity]],
    wanted: Wanted,
    rng: random.Random | None = None,
    *,
    beside: Sequence[type[Entity]] = (),
) -> list[EntityDraft]:
    """Compare entities with a sample of the app's table; those with most to do come first.

    Items of the entities `beside` are told apart, and not compared.
    """
    around = await survey(app, aws)
    sample, own = await _sample(aws, around.table, wanted, rng or random.Random())
    looked_at = sample.scanned - own
    known = tuple(dict.fromkeys([*app.known, *entities, *beside]))
    of_none = _of_none(app, known, around.table, sample)
    found = []
    for entity in entities:
        transform = Transform(_identity(entity), around.table, None, known)
        indexes = sorted({one.name for one in spec_of(entity).indexes.values()})
        absent = tuple(name for name in indexes if name not in around.table.indexes)
        notes = tuple(f"the table has no index {name}" for name in absent)
        one = EntityDraft(
            entity,
            notes=notes,
            looked_at=looked_at,
            scanned=sample.scanned,
            of_none=of_none,
        )
        for part in sample.parts:
            for item in part.items:
                if transform.matches(item):
                    one.add(transform, item, around.table)
        found.append(one)
    return sorted(found, key=lambda one: -sum(one.found.values()))


def _of_none(
    app: App, known: Sequence[type[Entity]], schema: TableSchema, sample: Sample
) -> Counter[str]:
    """Count the items that belong neither to an entity nor to an aggregate, by their types."""
    moved = [entity for one in app.migrations.values() for entity in (*one.sources, one.target)]
    stored = [stored_as(aggregate) for aggregate in app.aggregates]
    entities = dict.fromkeys(one for one in (*known, *stored, *moved) if one is not None)
    matchers = [Matcher(entity, schema) for entity in entities]
    found, attribute = Counter[str](), schema.type_attribute or ""
    for item in (item for part in sample.parts for item in part.items):
        if not (is_own(schema, item) or any(matcher.matches(item) for matcher in matchers)):
            found[item.get(attribute, {}).get("S", "")] += 1
    return found


async def _sample(
    aws: Aws, schema: TableSchema, wanted: Wanted, rng: random.Random
) -> tuple[Sample, int]:
    """Read a sample, a larger one while hardly any of its items are the application's.

    Returns:
        The sample, and how many of its items are streamkit's own.
    """
    for factor in _LARGER:
        asked = Wanted(wanted.share, wanted.items and wanted.items * factor)
        sample = await sample_of(aws, schema.name, asked, rng)
        own = sum(is_own(schema, item) for part in sample.parts for item in part.items)
        # About half is enough: segments differ in size, and so does what is in them.
        if wanted.items is None or 2 * (sample.scanned - own) >= wanted.items or sample.share == 1:
            break
    return sample, own


def _identity(entity: type[Entity]) -> Migration:
    """Return the migration that stores each item as a put of today would."""

    def same(item: entity) -> entity:  # type: ignore[valid-type]
        return item

    return read_migration("000", entity, same, MigrationOptions())


def _difference(name: str, value: object, image: Image) -> str:
    if name not in image:
        return f"{name} is missing"
    (wanted,), (there,) = encode(value), encode(image[name])
    if wanted != there:
        return f"{name} is stored as {there}, not as {wanted}"
    return f"{name} has another value than a put would store"
