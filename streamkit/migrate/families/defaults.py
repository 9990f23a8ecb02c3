"""Tell what only a default has filled in from what old code has written. Pure.

Old code makes an item without a name, and the migration's function makes an empty one of that. If
new code has written a name, there is no conflict: old code has said nothing of it. That is so where
`reverse=` brings the new value back without changing anything that stands in an old item, and the
function then makes the new value of it.

In: both sides of a family, and its items. Out: the old side, without such fields. A function of the
user that raises leaves a field what it was: written.
"""

from contextlib import suppress
from dataclasses import replace

from streamkit.migrate.families.settlement import THERE, FamilySide, Field
from streamkit.migrate.families.shapes import BothShapes
from streamkit.migrate.items.rewrites import Items


def without_defaults(
    shapes: BothShapes, old: Items, sides: tuple[FamilySide, FamilySide], image: Items
) -> FamilySide:
    """Return the first of two `sides`, the old one, without the fields that old code did not write.

    `image` is the new items.
    """
    ours, theirs = sides
    if not shapes.mirrors or shapes.settle == "item" or not (ours.changed and theirs.changed):
        return ours
    doubtful = {
        name
        for name in (ours.fields.keys() & theirs.fields.keys()) - ours.base.keys()
        if ours.fields[name] != theirs.fields[name] and name[1] != THERE
    }
    filled = {name for name in doubtful if _is_filled(shapes, old, image, ours, name)}
    return replace(ours, fields={n: d for n, d in ours.fields.items() if n not in filled})


def _is_filled(shapes: BothShapes, old: Items, image: Items, ours: FamilySide, name: Field) -> bool:
    """Return whether a field's new value comes back beside what old code wrote."""
    place, attribute = name
    written = {attribute: (image[place] or {})[attribute]}
    with suppress(Exception):  # of the user's functions; a stub may say too little for them
        seen = {at: target.item for at, target in shapes.targets(old).items()}
        now = {**seen, place: {**seen[place], **written}}
        after = shapes.old_items(old, [*seen.values()], [*now.values()])
        kept = all((after[at] or {}).items() >= (one or {}).items() for at, one in old.items())
        wanted = {**ours.fields, name: shapes.view(now)[name]}
        return kept and after != old and shapes.view_of_old(after) == wanted
    return False
