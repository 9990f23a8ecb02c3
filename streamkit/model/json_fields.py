"""JSON fields: what `--json` prints of a report, which is a dataclass."""

from dataclasses import asdict
from typing import Any


class JsonFields:
    """The base of dataclasses whose fields are printed as they are, under their names."""

    __slots__ = ()

    def to_dict(self: Any) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)
