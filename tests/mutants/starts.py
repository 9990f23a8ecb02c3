"""Bugs of handlers that start in the past: where they begin, what they would miss, who they are."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "start-not-in-the-archive",
        "fleet/founding.py",
        "            begun = Origin(moment, found.begins)\n",
        "            begun = Origin(moment)\n",
        "a handler with a start reads the stream alone, and misses what the archive has",
        test="tests/simulation/test_handler_starts.py::test_a_handler_begins_in_the_archive_and_stays_a_consumer_of_its_own",
    ),
    Mutant(
        "start-in-spite-of-gaps",
        "fleet/founding.py",
        "            lacks += found.lacks\n",
        "",
        "a handler begins although the archive has gaps since its start",
        test="tests/simulation/test_handler_starts.py::test_a_start_before_the_archive_begins_is_refused_and_the_app_goes_on",
    ),
    Mutant(
        "start-in-another-stream",
        "fleet/founding.py",
        "        if asked < created and await self._had_another_stream(store):\n",
        "        if asked > created and await self._had_another_stream(store):\n",
        "changes of the table's former stream are passed over in silence",
        test="tests/simulation/test_handler_starts.py::test_a_table_that_had_another_stream_has_not_every_change_since_then",
    ),
    Mutant(
        "start-without-its-cursors",
        "fleet/joining.py",
        "begins=origin.begins, rewinding=bool(origin.begins))",
        "begins=origin.begins)",
        "the cursors where a handler begins in the archive are never created",
        test="tests/simulation/test_handler_starts.py::test_a_handler_begins_in_the_archive_and_stays_a_consumer_of_its_own",
    ),
    Mutant(
        "start-left-out",
        "fleet/joining.py",
        "            await founding.require_none_apart(store, handlers)\n",
        "            pass\n",
        "a handler that had positions of its own goes on at the app's, and misses changes",
        test="tests/simulation/test_handler_starts.py::test_a_handler_that_loses_its_start_is_refused_by_the_app",
    ),
    Mutant(
        "start-of-a-handler-taken-for-an-apps",
        "app.py",
        "        self.exact = exact\n",
        "        self.exact = False\n",
        "a handler begins at the oldest record of the stream although its start is older",
        test="tests/simulation/test_handler_starts.py::test_a_start_older_than_the_stream_is_refused_without_an_archive",
    ),
    Mutant(
        "archived-children-not-in-status",
        "operate/unread.py",
        "            if not shards and archive is not None:\n",
        "            if not shards and archive is None:\n",
        "a consumer that reads the archive seems to be done, while trimmed children wait",
        test="tests/simulation/test_handler_starts.py::test_status_says_how_far_a_handler_is_that_catches_up",
    ),
    Mutant(
        "catches-up-without-a-rate",
        "worker/catch_up.py",
        "min(self._allowed + earned, used + self.units), now",
        "self._allowed + earned, now",
        "a handler that catches up takes more of the table's capacity than it may",
        test="tests/unit/test_catch_up.py::test_what_was_not_used_is_not_saved_up",
    ),
    Mutant(
        "overtakes-its-archived-past",
        "fleet/lister.py",
        "        if self.lineage.reaches_back and not self.cursors:\n",
        "        if not self.lineage.reaches_back and not self.cursors:\n",
        "a new leader takes the child of a trimmed parent for an orphan, and older changes come later (L3)",
        test="tests/simulation/test_handler_start_seeds.py::test_a_consumer_that_restarts_in_the_archive_reads_no_shard_before_its_parents",
    ),
)
