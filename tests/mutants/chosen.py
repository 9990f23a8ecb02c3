"""Deliberate bugs in migrations of chosen items: lines of the list are lost, or read twice."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "end-of-a-segment-of-keys-one-line-late",
        "migrate/keys.py",
        "                elif at >= end:\n",
        "                elif at > end:\n",
        "a line that begins at the border of two segments is read in both",
        test="tests/unit/migrate/test_migration_keys.py::test_each_line_is_in_one_segment_however_the_list_is_cut",
    ),
    Mutant(
        "end-of-a-segment-of-keys-one-line-early",
        "migrate/keys.py",
        "                elif at >= end:\n",
        "                elif at + len(line) >= end:\n",
        "a line that reaches over the border of two segments is read in neither",
        test="tests/unit/migrate/test_migration_keys.py::test_each_line_is_in_one_segment_however_the_list_is_cut",
    ),
    Mutant(
        "line-before-a-page-of-keys-left-out",
        "migrate/keys.py",
        "in_line = place is None and begin > 0  #",
        "in_line = begin > 0  #",
        "each page of keys but the first of its segment leaves out its first line",
        test="tests/unit/migrate/test_migration_keys.py::test_each_line_is_in_one_segment_however_the_list_is_cut",
    ),
    Mutant(
        "list-of-keys-has-changed-unnoticed",
        "migrate/keys.py",
        "async with open_keys(state.keys_from, state.keys_tag) as keys:",
        "async with open_keys(state.keys_from) as keys:",
        "a migration goes on in the middle of another list, and some keys of both are left out",
        test="tests/unit/migrate/test_migration_keys.py::test_a_list_that_has_changed_stops_the_migration_where_it_is",
    ),
    Mutant(
        "chosen-items-that-are-missing-uncounted",
        "migrate/passing.py",
        "missing=scanned - found)",
        "missing=0)",
        "nobody learns that keys of the list have no item",
        test="tests/unit/migrate/test_migration_keys.py::test_only_the_items_of_the_list_are_changed_and_missing_ones_are_counted",
    ),
    Mutant(
        "chosen-items-that-are-missing-verified",
        "migrate/verifying.py",
        '            looked_at - len(reply["Items"]),\n',
        "            0,\n",
        "a verification says nothing of keys that have no item",
        test="tests/unit/migrate/test_migration_keys.py::test_only_the_items_of_the_list_are_changed_and_missing_ones_are_counted",
    ),
    Mutant(
        "chosen-items-read-free-of-charge",
        "migrate/calls.py",
        "reply = await self._read(self._dynamodb.get_item, request)",
        "reply = await self._dynamodb.get_item(**request)",
        "items that are read by their keys count for no limit of read units",
        test="tests/unit/migrate/test_migration_keys.py::test_a_limit_of_read_units_holds_for_items_that_are_read_by_their_keys",
    ),
    Mutant(
        "rollback-of-chosen-items-alone",
        "migrate/state.py",
        'return bool(self.keys_from) and self.direction == "forward"',
        "return bool(self.keys_from)",
        "what the application wrote meanwhile stays in the new shape after a rollback",
        test="tests/unit/migrate/test_migration_keys.py::test_a_rollback_looks_for_changed_items_in_the_whole_table",
    ),
    Mutant(
        "list-of-keys-forgotten-by-an-older-release",
        "migrate/state.py",
        '        elif self.reads_keys and self.phase != "done":\n',
        '        elif self.reads_keys and self.phase == "new":\n',
        "an older release pauses a migration of chosen items, and its scan becomes one of the whole table",
        test="tests/unit/migrate/test_migration_keys.py::test_a_release_that_knows_no_list_sees_another_definition",
    ),
    Mutant(
        "list-of-keys-anywhere-in-its-bucket",
        "operate/permissions/sinks.py",
        "{parts.netloc}{literal(parts.path)}",
        "{parts.netloc}/*",
        "a migration may read every object beside the list of its keys",
        test="tests/unit/test_iam.py::test_a_list_of_keys_in_a_bucket_may_be_read_and_nothing_beside_it",
    ),
    Mutant(
        "numbers-of-a-page-before-its-segment",
        "migrate/passing.py",
        '            await segment.advance(reply.get("LastEvaluatedKey"), [action])\n',
        '            after = reply.get("LastEvaluatedKey")\n'
        "            await segment.advance(segment.last or after, [action])\n"
        "            await segment.advance(after)\n",
        "what a page did is counted again by the process that takes over between two commits",
        test="tests/simulation/test_migration_stops.py::test_one_of_two_processes_with_a_list_of_keys_is_killed_at_any_call_and_each_line_counts_once",
    ),
)
