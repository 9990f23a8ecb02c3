"""Tell before a move whether one condition holds all that a write of a family asks for. Pure.

Each write of a family asks for every attribute of its items by name, and DynamoDB takes about 120
names in a condition.

In: the old items of a family, as they are stored. Out: whether its writes can be made, both the one
that makes the new items and a later one, which knows the names of both sides.
"""

from streamkit.migrate.families.family import Family, Rules, Views
from streamkit.migrate.families.family_writes import FamilyWrites
from streamkit.migrate.families.plans import Plans
from streamkit.migrate.families.shapes import BothShapes
from streamkit.migrate.items.reverse import Items
from streamkit.migrate.items.sources import TransformError
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.items.writes import Key


class FamilyRoom:
    """Looks at families of one migration that moves items."""

    def __init__(self, transform: Transform) -> None:
        self.transform = transform
        self._shapes = BothShapes(transform)
        self._plans = Plans(Views(self._shapes), Rules())
        self._writes = FamilyWrites(self._shapes, transform.migration.id)

    def is_enough(self, key: Key, old: Items) -> bool:
        """Return whether the writes of a family can be made.

        Args:
            key: the key of the family.
            old: its old items, by place.

        Raises:
            Exception: any error of the migration's function.
        """
        made = self._plans.settle(Family(key, None, old, dict.fromkeys(self._shapes.targets(old))))
        turned = made and self._plans.turn(made.after, counts_new=True)
        try:
            for plan in filter(None, (made, turned)):
                self._writes.of(plan)
        except TransformError:
            return False
        return True
