"""JSON fields: what `--json` prints of a report, which is a dataclass."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class JsonFields:
    """The base of dataclasses whose fields are printed as they are, under their names."""

    __slots__ = ()

    def to_dict(self: "DataclassInstance") -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)
