"""What follows from what in documents: a history of every change, and copies of the settings."""

from handlers.documents.entities import Document, Part, Settings, SettingsCopy, Version
from streamkit import (
    App,
    Expired,
    Inserted,
    Modified,
    Put,
    Removed,
    Set,
    Table,
    TableShape,
    absent,
    changed,
    present,
)

Edited = Inserted[Document] | Modified[Document]
Gone = Removed[Document] | Expired[Document]

COPIES = 8
"""Copies of the settings, each under a key of its own, to spread the reads."""

app = App(
    "documents", table="Documents", type_attribute="type", entities=[Part, SettingsCopy, Version]
)

SHAPE = TableShape()


NO_NUMBER_IS_GREATER = 10**40 - 1
"""As text too: between `1` and a row of nines is every number, and nothing else."""


@app.on(when=changed("title", "parts"), cycle="bounded")
async def keep_version(change: Edited | Gone, table: Table) -> tuple[Put[Version], Set[Document]]:
    """Leave a version for each change of a document, and its number on the document.

    The number is no change of title or parts, so it ends here. If a version of this number is there
    at the commit, it runs again: no number is given twice, and none is left out.
    """
    version = await version_of(change, table)
    current = Set(Document.key(document_id=version.document_id), version=version.number)
    return (
        Put(version).only_if(absent, otherwise="retry"),
        current.only_if(present, otherwise="omit"),
    )


async def version_of(change: Edited | Gone, table: Table) -> Version:
    """Write down what a change has made of a document, under the next number."""
    if isinstance(change, Removed | Expired):
        document_id = change.old.document_id
        number = await next_number(document_id, table)
        return Version(document_id=document_id, number=number, at=change.created_at)
    now = change.new
    return Version(
        document_id=now.document_id,
        number=await next_number(now.document_id, table),
        title=now.title,
        parts=now.parts,
        author=now.author,
        at=now.at,
    )


async def next_number(document_id: str, table: Table) -> int:
    """Return the number after the latest version's.

    The document says it, unless it was deleted, or put again since; then its history is looked at.
    These reads are not checked at the commit, because a busy document would hold it up: it is
    enough that there is no version of this number yet.
    """
    document = await table.get(Document.key(document_id=document_id), check=False)
    number = 1 + (document.version if document else 0)
    key = Version.key(document_id=document_id, number=number)
    if await table.get(key, check=False) is None:
        return number
    history = Version.query(document_id=document_id).between(1, NO_NUMBER_IS_GREATER)
    return 1 + max([version.number async for version in table.query(history)])


@app.derive
def settings_copies(settings: Settings) -> list[SettingsCopy]:
    """Copy the settings under several numbers; they come, change and go with the master."""
    return [SettingsCopy(number=number, values=settings.values) for number in range(1, COPIES + 1)]
