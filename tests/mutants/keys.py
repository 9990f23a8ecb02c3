"""Deliberate bugs in which item a key is of, what a key says, and whose item it is."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    # -- the key that was read ---------------------------------------------------------------------
    Mutant(
        "key-rebuilt-from-fields",
        "entity.py",
        "        if stored is not None:\n            pk, sk, unstored = stored\n",
        "        if stored is not None:\n            (pk, sk), unstored = built_key(self), ()\n",
        "an update goes to the key that the fields build, and makes a second item",
        test="tests/simulation/test_keys_as_read.py::test_the_item_that_was_read_is_the_one_that_is_written",
    ),
    Mutant(
        "put-rebuilds-the-key",
        "entity.py",
        "pk, sk, *_ = stored_key(self) or built_key(self)",
        "pk, sk, *_ = built_key(self)",
        "a changed item that is put whole stands beside the one that was read",
        test="tests/simulation/test_keys_as_read.py::test_the_item_that_was_read_is_the_one_that_is_written",
    ),
    Mutant(
        "stream-forgets-the-key",
        "decode/images.py",
        "        remember_key(entity, key)\n        return entity\n\n    def decode_item",
        "        return entity\n\n    def decode_item",
        "the items of changes do not know their keys, those of reads do",
        test="tests/simulation/test_keys_as_read.py::test_a_function_writes_the_item_that_was_read",
    ),
    Mutant(
        "copy-forgets-the-key",
        "entity.py",
        "        remember_key(other, key)\n",
        "        remember_key(item, key)\n",
        "a copy of an item that was read is another item",
        test="tests/unit/test_entity.py::test_a_copy_is_of_the_same_item_unless_a_field_of_its_key_is_another",
    ),
    Mutant(
        "copy-keeps-a-key-that-changed",
        "entity.py",
        "            if getattr(copied, name) != getattr(self, name):\n",
        "            if getattr(copied, name) is None:\n",
        "an item that was copied with another key is written over the one it was copied from",
        test="tests/unit/test_entity.py::test_a_copy_is_of_the_same_item_unless_a_field_of_its_key_is_another",
    ),
    # -- what a key says ---------------------------------------------------------------------------
    Mutant(
        "ambiguous-key-guessed",
        "model/unbuilding.py",
        "        if not one_way and places != _ends(",
        "        if one_way and places != _ends(",
        "a key that could be split in two ways is read in the first of them",
        test="tests/unit/test_unbuilding.py::test_a_key_is_read_exactly_if_one_split_exists",
    ),
    Mutant(
        "key-wins-over-attribute",
        "decode/keyed.py",
        "if name in said and values.keys().isdisjoint(attributes)",
        "if name in said",
        "what the key says replaces what the item says",
        test="tests/unit/decode/test_images.py::test_an_attribute_that_is_there_wins_over_the_key",
    ),
    Mutant(
        "descending-number-read-ascending",
        "model/unbuilding.py",
        "    if placeholder.is_descending:\n",
        "    if not placeholder.spec:\n",
        "descending numbers are not read from keys",
        test="tests/unit/test_unbuilding.py::test_a_field_is_read_from_its_key",
    ),
    Mutant(
        "update-adds-what-stood-in-the-key",
        "actions.py",
        "    hidden = {names[name] for name in unstored}\n",
        "    hidden = {names[name] for name in unstored[1:]}\n",
        "each update of an item adds an attribute for what stood only in its key",
        test="tests/unit/decode/test_images.py::test_an_update_writes_nothing_that_stands_only_in_the_key_and_changes_none_of_it",
    ),
    Mutant(
        "key-shapes-disagree",
        "model/unbuilding.py",
        "        if known is None or other is None:",
        "        if known is None and other is None:",
        "of two keys that say different things one is believed",
        test="tests/unit/test_unbuilding.py::test_a_key_is_split_where_there_is_one_way",
    ),
    # -- groups that follow from the key -----------------------------------------------------------
    Mutant(
        "group-of-none",
        "kinds/aggregate.py",
        "return None if any(value is None for value in fields.values()) else",
        "return None if all(value is None for value in fields.values()) else",
        "a change of an item that is in no group is parked",
        test="tests/unit/kinds/test_groups.py::test_an_item_without_a_field_of_the_groups_key_is_in_no_group",
    ),
    Mutant(
        "group-by-a-part-of-a-moment",
        "kinds/soundness.py",
        "        if name not in unbuilder(stored).readable or of_source != of_group:\n",
        "        if of_source != of_group:\n",
        "a month's group has the moment of any of its items",
        test="tests/unit/kinds/test_groups.py::test_a_group_that_does_not_follow_from_the_key_is_refused_with_its_line",
    ),
    # -- when= comes first -------------------------------------------------------------------------
    Mutant(
        "when-decodes-everything",
        "processing/typed.py",
        "(None if i is None else decoder.values(i, fields) for i in images)",
        "(None if i is None else vars(decoder.decode(i)) for i in images)",
        "a change that no handler wants is parked because it cannot be read",
        test="tests/simulation/test_when_first.py::test_a_change_that_when_leaves_out_is_not_parked_for_what_cannot_be_read",
    ),
    Mutant(
        "few-fields-read-as-all",
        "decode/images.py",
        "        if read is None:\n            return self._plainly(raw, fields)\n",
        "        if read is not None:\n            return self._plainly(raw, fields)\n",
        "the fields that when= looks at are read with all the others",
        test="tests/simulation/test_when_first.py::test_a_function_asks_when_first_too",
    ),
)
