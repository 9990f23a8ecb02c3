"""Look at the items of a sample, and sum up what a migration would do with them.

In: the parts of a sample. Out: a `MigrationPlan`: how many items a migration concerns and how many
are not right yet, units and money by step, and problems. On failure: what the function raises is a
problem of the item.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamkit.core.matching import Matcher
from streamkit.errors import USER_ERRORS, DecodeError
from streamkit.kinds.aggregate.aggregate import Aggregate, source_of
from streamkit.kinds.migration import Migration
from streamkit.migrate.book.errors import error_id
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.families.family_writes import FamilyRoom
from streamkit.migrate.items.marks import mark_of, place_is
from streamkit.migrate.items.rewrites import Rewrite, plain
from streamkit.migrate.items.sources import queries_of_parts
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.plan.diffs import Diff, diff_of
from streamkit.migrate.plan.dry_run import DryRun, Trial, moods_of
from streamkit.migrate.plan.estimates import Forecast, forecast
from streamkit.migrate.plan.expenses import Expenses, Spent, entry_units, source_units
from streamkit.migrate.plan.indexes import IndexBuild, KeyJoins
from streamkit.migrate.plan.problems import Problem, Problems
from streamkit.migrate.run.sampling import Part, Sample, SampleEstimate
from streamkit.migrate.run.work import Schemas
from streamkit.migrate.sending.attempts import located
from streamkit.migrate.sending.calls import Calls
from streamkit.observe.pricing import DOLLARS, PRICED
from streamkit.progress.actions import Wire
from streamkit.progress.activity import each_of
from streamkit.progress.scan.places import place_of, place_text
from streamkit.stream.decode.keyed import trouble_of_key

_READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What is known of a migration before it runs.

    `matching` are the items of its entity, as a share of all, `needing` those of them that are not
    right yet. `looked_at` items of the sample were read, which is a share of `sampled` of the
    table. `indexes` are being created meanwhile, at a price of their own. With
    `keys_from` all numbers are about the items whose keys are listed there. `sources` has the share
    of each entity of a merge, by name.
    """

    migration: str
    mode: str
    entity: str
    looked_at: int
    sampled: float
    items: SampleEstimate
    matching: SampleEstimate
    needing: SampleEstimate
    forecast: Forecast
    problems: tuple[Problem, ...] = ()
    diffs: tuple[Diff, ...] = ()
    indexes: tuple[IndexBuild, ...] = ()
    settle: str = ""
    keys_from: str = ""
    sources: dict[str, SampleEstimate] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is no reason against it."""
        return not any(problem.severity == "error" for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        fields = asdict(self)
        costs, diffs = fields.pop("forecast"), [diff.to_dict() for diff in self.diffs]
        return {**fields, **costs, "ok": self.ok, "prices": PRICED, "diffs": diffs}


@dataclass
class _Seen:
    """What was found in one part of the sample."""

    scanned: int
    spent: Spent
    matching: int = 0
    needing: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    building: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class SampleLook:
    """Reads the items of a sample, and collects what it finds."""

    migration: Migration
    schemas: Schemas
    calls: Calls
    problems: Problems
    diffs_wanted: int
    show_keys: bool
    now: float
    keys_from: str = ""
    seen: list[_Seen] = field(default_factory=list)
    diffs: list[Diff] = field(default_factory=list)
    targets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the checks of an item; an aggregate has no function."""
        schemas = self.schemas
        self.trials: DryRun | None = None
        self.room: FamilyRoom | None = None
        if self.migration.function is not None:
            self.trials = DryRun(self.migration, schemas.source, schemas.target, schemas.entities)
            self.matches = self.trials.transform.matches
            self.room = FamilyRoom(self.trials.transform) if self.migration.moves else None
            for name in moods_of(self.migration):
                text = f"it names {name!r}: what it answers is to follow from the item"
                self.problems.warn("impure", text)
        self.expenses = Expenses(self.migration, schemas.source, schemas.target)
        self.joins = KeyJoins(self.migration, schemas.source)
        entity = self.migration.entity
        if issubclass(entity, Aggregate):
            self.matches = Matcher(source_of(entity), schemas.source, schemas.entities).matches

    async def at(self, part: Part) -> None:
        """Look at the items of a part."""
        units = source_units(self.schemas.source, self.keys_from, part.items, part.scanned)
        seen = _Seen(part.scanned, self.expenses.of_passes(units, part.scanned))
        self.seen.append(seen)
        for name in self.schemas.source.indexes_created:
            index = self.schemas.source.indexes[name]
            entries = (entry_units(self.schemas.source, index, None, item) for item in part.items)
            seen.building[name] = [one for one in entries if one]
        mine = filter(self.matches, part.items)
        await each_of(_READS_AT_ONCE, mine, lambda item: self._item(item, seen))

    async def _item(self, item: dict[str, Wire], seen: _Seen) -> None:
        seen.matching += 1
        if self.trials is None:
            seen.needing += 1
            seen.spent["rewrite", "write", ""] += 5  # the entry of its ledger, twice, and its group
            return
        key = self.trials.transform.sources.family(item)
        name = error_id(key)
        seen.sources[self.trials.transform.sources.entity_of(item).__name__] += 1
        trial = self.trials.of(item)
        for fault, text in trial.faults:
            self.problems.fault(fault, text, name)
        self._expiry(item, trial, name)
        self._key(item, self.trials.transform, name)
        if self.room is not None and trial.rewrite is not None:
            await self._fit(item, self.room, name)
        if trial.rewrite is None:
            seen.needing += 1
            return
        there = [
            await self.calls.get(self.schemas.target.name, t.key) for t in trial.rewrite.targets
        ]
        needs = self._needs(key, trial.rewrite, there)
        seen.needing += needs
        self.joins.see(plain(item), trial.rewrite)
        queries = self._queries(item, self.trials.transform)
        seen.spent.add(self.expenses.of(item, trial.rewrite, there, queries))
        if needs and len(self.diffs) < self.diffs_wanted:
            shown = json.dumps(json.loads(place_text(key))) if self.show_keys else name
            self.diffs.append(diff_of(shown, trial, there))

    def _queries(self, item: dict[str, Wire], transform: Transform) -> int:
        """Return how many queries find the parts of an item."""
        if self.migration.collect is None:
            return 0
        try:
            return len(queries_of_parts(self.migration, transform.entity(item)))
        except USER_ERRORS:  # its trial says so
            return 0

    async def _fit(self, item: dict[str, Wire], room: FamilyRoom, name: str) -> None:
        """Check that one condition holds what a write of an item's family asks for."""
        schema, sources = self.schemas.source, room.transform.sources
        own = place_text(schema.key_of(item))
        try:
            old: dict[str, dict[str, Wire] | None] = {own: item}
            for place in sources.places(item).keys() - {own}:
                old[place] = await self.calls.get(schema.name, place_of(place))
            if not room.is_enough(sources.family(item), old):
                text = "its writes ask for more attributes by name than one condition holds"
                self.problems.fault("too large", text, name)
        except USER_ERRORS as error:
            self.problems.fault("transform", located(error), name)

    def _needs(
        self, key: Mapping[str, Wire], rewrite: Rewrite, there: list[dict[str, Wire] | None]
    ) -> bool:
        """Return whether an item is not right yet; check what is in its targets' places."""
        if not self.migration.is_pairs:
            return rewrite.changes_item
        mark, name = mark_of(self.migration, self.schemas.source, key), error_id(key)
        needs = self.migration.mode == "split" and rewrite.changes_item
        for target, one in zip(rewrite.targets, there, strict=True):
            place = place_is(self.migration, mark, target, one)
            needs = needs or place != "right"
            if place == "taken":
                self.problems.fault("conflict", "another item is where it belongs", name)
            elif self.targets.setdefault(place_text(target.key), name) != name:
                self.problems.fault("collision", "two items would become one", name)
        return needs

    def _key(self, item: Mapping[str, Wire], transform: Transform, name: str) -> None:
        """Check whether it may be an item of another type, or its fields build another key."""
        try:
            trouble = trouble_of_key(transform.entity(item), self.schemas.source)
        except DecodeError:
            return  # a function that takes the entity has failed on it
        if trouble is not None:
            self.problems.fault("key", f"they {trouble}", name)

    def _expiry(self, item: Mapping[str, Wire], trial: Trial, name: str) -> None:
        ttl = self.schemas.source.ttl
        if ttl is None:
            return
        if 0 < float(item.get(ttl, {}).get("N", "0")) < self.now:
            self.problems.fault("expired", f"it waits for its deletion, by {ttl}", name)
        rewrite = trial.rewrite
        if rewrite is not None and ttl in {*rewrite.sets, *rewrite.removes}:
            self.problems.fault("expiry", f"when it expires changes, by {ttl}", name)

    def plan(self, sample: Sample, budget: Limit) -> MigrationPlan:
        """Return the plan from everything that was found."""
        seen = self.seen
        scanned = [float(one.scanned) for one in seen]
        matching = [float(one.matching) for one in seen]
        advice = self.joins.advice
        if advice is not None:
            self.problems.warn("index", advice)
        if not sum(matching):
            text = f"no item of {self.migration.entity.__name__} is in the sample"
            self.problems.warn("none", text)
        return MigrationPlan(
            migration=self.migration.id,
            mode=self.migration.mode,
            entity=self.migration.entity.__name__,
            looked_at=sample.scanned,
            sampled=sample.share,
            items=sample.total_of(scanned),
            matching=sample.ratio_of(matching, scanned),
            needing=sample.ratio_of([float(one.needing) for one in seen], matching),
            forecast=forecast(self.migration, sample, [one.spent for one in seen], budget),
            problems=self.problems.all(sum(matching)),
            diffs=tuple(self.diffs),
            indexes=tuple(self._build(sample, name) for name in sorted(seen[0].building)),
            settle=self.migration.policy,
            keys_from=self.keys_from,
            sources=self._sources(sample, scanned),
        )

    def _sources(self, sample: Sample, scanned: list[float]) -> dict[str, SampleEstimate]:
        """Return the share of each entity of a merge; none for other modes."""
        if self.migration.mode != "merge":
            return {}
        names = [one.__name__ for one in self.migration.sources]
        return {
            name: sample.ratio_of([float(one.sources[name]) for one in self.seen], scanned)
            for name in names
        }

    def _build(self, sample: Sample, name: str) -> IndexBuild:
        writes = [float(sum(one.building[name])) for one in self.seen]
        return IndexBuild(
            name,
            sample.total_of([float(len(one.building[name])) for one in self.seen]),
            sample.total_of(writes),
            sample.total_of([DOLLARS["write"] * units for units in writes]),
        )
