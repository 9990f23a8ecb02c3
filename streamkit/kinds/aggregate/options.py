"""Check the class keywords of an aggregate that say how its items are kept. Pure.

In: what a class statement gives. Out: `Options` that fit together, each keyword inherited by
itself. On failure: `DeclarationError` with the class's line.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from streamkit.entity import Entity
from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration
from streamkit.model.parts import PARTS_MAX

Missing = Literal["create", "skip", "park"]
"""What a contribution does if the application's item does not exist."""


@dataclass(frozen=True, slots=True)
class Options:
    """How an aggregate's items are kept.

    Attributes:
        spread: how many parts a group has; 1 is one item.
        remove_empty: whether a group is deleted when all its measures are zero.
        onto: the application's entity whose items take the contributions.
        missing: what happens if such an item does not exist.
        approximate: whether contributions are plain updates after the commit.
    """

    spread: int = 1
    remove_empty: bool = False
    onto: type[Entity] | None = None
    missing: Missing = "skip"
    approximate: bool = False

    def check(self, declaration: Declaration, *, given_missing: bool) -> None:
        """Refuse options that do not fit together.

        Raises:
            DeclarationError: the options do not fit; it names the class and its line.
        """
        problem = self._problem(given_missing=given_missing)
        if problem:
            raise DeclarationError(f"{declaration}: {problem}")

    def _problem(self, *, given_missing: bool) -> str | None:
        for name in ("remove_empty", "approximate"):
            if not isinstance(value := getattr(self, name), bool):
                return f"{name}={value!r}: it is True or False"
        if self.onto is not None and not isinstance(self.onto, type):
            return f"onto={self.onto!r} is not an entity"
        if not isinstance(self.spread, int) or not 1 <= self.spread <= PARTS_MAX:
            return f"spread={self.spread!r}: a group has 1 to {PARTS_MAX} parts"
        if self.missing not in get_args(Missing):
            return f"missing={self.missing!r}: create, skip or park"
        if self.onto is None and given_missing:
            return "missing= says what happens without the item of onto=; there is no onto="
        if self.onto is not None and self.spread > 1:
            return f"spread= would put parts beside each {self.onto.__name__}; leave it out"
        if self.onto is not None and self.remove_empty:
            return f"remove_empty=True would delete items of the application's {_name(self.onto)}"
        if self.approximate and self.remove_empty:
            return "what is approximate is never known to be empty; leave out remove_empty="
        if self.approximate and self.onto is not None and self.missing == "park":
            return 'what is approximate parks nothing; say missing="skip" or "create"'
        return None

    @property
    def text(self) -> str:
        """The options as text, for the digest of a definition."""
        onto = "" if self.onto is None else _name(self.onto)
        parts = (self.spread, self.remove_empty, onto, self.missing, self.approximate)
        return repr(parts)


def _name(entity: type[Entity]) -> str:
    return entity.__name__
