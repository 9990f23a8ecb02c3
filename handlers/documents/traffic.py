"""The application of the demo: authors who write, publish, roll back and throw away."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate
from typing import Any

from handlers.documents.entities import Document, Part, Settings, SettingsCopy, Version
from handlers.documents.handlers import COPIES
from streamkit import Attr, Delete, Put, Set, absent
from streamkit.testing.final import Comparison, Final
from streamkit.testing.traffic import Writer

DOCUMENTS = tuple(f"D{number}" for number in range(1, 13))
PARTS = ("INTRO", "SUMMARY", "VIEWS")
AUTHORS = ("ann", "bob", "zoe")

State = tuple[str | None, str | None, tuple[tuple[str, int], ...], datetime | None]
"""Title, author, parts and moment of a version; the moment of a deletion is not compared."""


class Traffic:
    """Authors who share a few documents, and somebody who changes the settings."""

    def __init__(self) -> None:
        self._staged: Counter[tuple[str, str]] = Counter()
        self._deleted: dict[int, datetime] = {}

    async def open(self, writer: Writer) -> None:
        """Make settings and some documents."""
        await writer.put(Settings(values={"colour": "blue"}))
        for document_id in DOCUMENTS[:9]:
            await self._begin(writer, document_id)

    async def act(self, writer: Writer) -> None:
        """Do what somebody does with a document, or with the settings."""
        rng, chance = writer.rng, writer.rng.random()
        document_id = rng.choice(DOCUMENTS)
        if chance < 0.1:
            await self._set(writer)
            return
        document = await writer.table.get(Document.key(document_id=document_id))
        if document is None:
            await self._begin(writer, document_id)
        elif chance < 0.7:
            await self._publish(writer, document)
        elif chance < 0.8:
            await self._roll_back(writer, document)
        elif chance < 0.9:
            await self._flip(writer, document, title=f"Draft {rng.randrange(10**9)}")
        else:
            await self._throw_away(writer, document)

    # -- what authors do -----------------------------------------------------------------------

    async def _begin(self, writer: Writer, document_id: str) -> None:
        """Make a document that points to nothing yet."""
        author = writer.rng.choice(AUTHORS)
        document = Document(document_id=document_id, title="New", author=author, at=writer.now)
        await writer.write(Put(document).only_if(absent))

    async def _publish(self, writer: Writer, document: Document) -> None:
        """Stage new versions of some parts, then flip the pointer; some authors never get to it."""
        rng, parts = writer.rng, dict(document.parts)
        for name in rng.sample(PARTS, rng.randrange(1, len(PARTS) + 1)):
            self._staged[document.document_id, name] += 1
            parts[name] = self._staged[document.document_id, name]
            part = Part(
                document_id=document.document_id,
                name=name,
                number=parts[name],
                text=f"{name.title()} no. {parts[name]}",
                author=rng.choice(AUTHORS),
            )
            await writer.write(Put(part).only_if(absent))
        if rng.random() < 0.9:
            await self._flip(writer, document, parts=parts)

    async def _roll_back(self, writer: Writer, document: Document) -> None:
        """Point to what an earlier version of the document pointed to."""
        if document.version < 2:
            return
        number = writer.rng.randrange(1, document.version)
        key = Version.key(document_id=document.document_id, number=number)
        earlier = await writer.table.get(key)
        if earlier is not None and earlier.parts != document.parts:
            await self._flip(writer, document, parts=earlier.parts)

    async def _flip(self, writer: Writer, document: Document, **fields: Any) -> None:
        """Change a document at once, unless somebody else was faster."""
        author = writer.rng.choice(AUTHORS)
        change = Set(document.item_key, **fields, author=author, at=writer.now)
        await writer.write(change.only_if(_unchanged(document)))

    async def _throw_away(self, writer: Writer, document: Document) -> None:
        """Delete a document, unless somebody else was faster; its parts and history stay."""
        deletion = Delete(document.item_key).only_if(_unchanged(document))
        self._deleted[id(deletion)] = writer.now
        await writer.write(deletion)

    async def _set(self, writer: Writer) -> None:
        """Change the settings; at times there are none for a moment, and copies have to go."""
        if writer.rng.random() < 0.2:
            await writer.delete(Settings.key())
        values = {"colour": writer.rng.choice(("blue", "red")), "size": str(writer.rng.random())}
        await writer.put(Settings(values=values))

    # -- what must follow ----------------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare the history of every document with what was written, change by change."""
        wanted = self._histories(final)
        found: dict[str, list[Version]] = defaultdict(list)
        for version in sorted(final[Version], key=lambda version: version.number):
            found[version.document_id].append(version)
        yield Comparison.of(
            "numbers of versions",
            {name: [v.number for v in versions] for name, versions in found.items()},
            {name: list(range(1, len(states) + 1)) for name, states in wanted.items()},
        )
        yield Comparison.of(
            "versions",
            {name: [_state(dict(version)) for version in found[name]] for name in found},
            wanted,
        )
        latest = {name: len(states) for name, states in wanted.items()}
        yield final.compare(
            Document,
            [d.model_copy(update={"version": latest[d.document_id]}) for d in final[Document]],
        )
        kept = {part.item_key for part in final[Part]}
        pointers = [*final[Document], *final[Version]]
        pointed = {key for pointer in pointers for key in pointer.part_keys}
        found_parts = {key.pk + key.sk: key in kept for key in pointed if key.sk}
        yield Comparison.of("parts", found_parts, dict.fromkeys(found_parts, True))
        copies = [
            SettingsCopy(number=number, values=settings.values)
            for settings in final[Settings]
            for number in range(1, COPIES + 1)
        ]
        yield final.compare(SettingsCopy, copies)

    def _histories(self, final: Final) -> dict[str, list[State]]:
        """Return what every document was, change by change, from what the application wrote.

        Each change was made of the state that its condition names, after that was read; so the
        moments before the writes are in order.
        """
        changes: dict[str, list[tuple[datetime, dict[str, Any]]]] = defaultdict(list)
        for written in final.log:
            effect = written.effect
            if isinstance(effect, Put) and isinstance(effect.entity, Document):
                document = effect.entity
                changes[document.document_id].append((document.at, dict(document)))
            elif isinstance(effect, Set | Delete) and effect.key.entity is Document:
                fields = dict(effect.fields) if isinstance(effect, Set) else {}
                at = fields["at"] if fields else self._deleted[id(effect)]
                changes[effect.key.pk.removeprefix("DOCUMENT#")].append((at, fields))
        histories: dict[str, list[State]] = {}
        for document_id, found in changes.items():
            in_order = [fields for _, fields in sorted(found, key=lambda pair: pair[0])]
            nothing: dict[str, Any] = {}
            states = accumulate(in_order, _after, initial=nothing)
            histories[document_id] = [_state(state) for state in states][1:]
        return histories


def _unchanged(document: Document) -> Any:
    """Return the condition that nobody has changed a document since it was read."""
    return Attr("at").eq(document.at) & Attr("author").eq(document.author)


def _state(fields: dict[str, Any]) -> State:
    parts = tuple(sorted(fields.get("parts", {}).items()))
    author = fields.get("author")
    return fields.get("title"), author, parts, fields.get("at") if author else None


def _after(before: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return a document's fields after some were set; nothing is left by a deletion."""
    return {**before, **fields} if fields else {}
