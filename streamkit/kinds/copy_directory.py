"""Keep a directory of copies: a mirror finds there what a lagging index does not show yet.

In: the name of a mirror, the key of a source, the key of a copy. Out: the entry of the copy, and
the query for all entries of the source. Entries are items of the application's table, under a
prefix of streamkit's own, and are written in the transaction that updates their copy.
"""

import hashlib
import json
from typing import Any

from streamkit.entity import Entity, Key, Query, built_key
from streamkit.model.codec import AttributeValue, encode
from streamkit.model.keys import wire_key
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_ATTRIBUTE, ENTRY_PREFIX


class CopyEntry(Entity, pk=f"{ENTRY_PREFIX}{{mirror}}#{{source}}", sk="{copied}"):
    """A copy in the directory of its source: hashes of both keys, and the copy's key itself.

    If one of its attributes has the name of a key of the table or of an index, the attributes get
    names that nothing else uses; the values that are then only in the key are read from there.
    """

    mirror: str
    source: str
    copied: str = ""
    pk: str
    sk: str | None = None

    def attributes(self, schema: TableSchema) -> dict[str, AttributeValue]:
        """Return the whole item as a put takes it."""
        if (schema.reserved_attributes | {schema.ttl}).isdisjoint(CopyEntry.model_fields):
            return super().attributes(schema)
        pk, sk = built_key(self)
        item = {**wire_key(schema, CopyEntry, pk, sk), _OWN_PK: encode(self.pk)}
        return item if self.sk is None else {**item, _OWN_SK: encode(self.sk)}


_OWN_PK, _OWN_SK = f"{CONTROL_ATTRIBUTE}copy_pk", f"{CONTROL_ATTRIBUTE}copy_sk"


@CopyEntry.upcast
def _with_plain_names(item: dict[str, Any]) -> dict[str, Any]:
    """Return an entry's values where its attributes have names of their own."""
    return {"pk": item[_OWN_PK], "sk": item.get(_OWN_SK)} if _OWN_PK in item else item


def directory_of(mirror: str, source: Key[Any]) -> Query[CopyEntry]:
    """Return the query for the entries of a source's copies."""
    return CopyEntry.query(mirror=mirror, source=_hashed(source))


def entry_of(mirror: str, source: Key[Any], copied: Key[Any]) -> CopyEntry:
    """Return the entry of a copy in the directory of its source."""
    of_source, of_copy = _hashed(source), _hashed(copied)
    return CopyEntry(mirror=mirror, source=of_source, copied=of_copy, pk=copied.pk, sk=copied.sk)


def _hashed(key: Key[Any]) -> str:
    text = json.dumps([key.pk, key.sk])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
