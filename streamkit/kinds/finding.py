"""A finding: something about an app on its table that is wrong, or may be."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or may be wrong."""

    severity: Literal["error", "warning"]
    text: str
