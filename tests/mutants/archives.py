"""Bugs of the archive: variants that its model says must break."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "archive-hashes-not-looked-at",
        "archive/link.py",
        "        if _hash_of(link, body) != link.sha256:\n",
        "        if not link.sha256:\n",
        "a damaged object is applied",
        test="tests/unit/archive/test_links.py::test_every_altered_byte_is_found",
    ),
    Mutant(
        "archive-key-taken-for-mine",
        "archive/chain.py",
        "                return self._opened(link.after, stored.body)[0]\n",
        "                return sealed\n",
        "a writer takes the link of another for its own, and leaves out what that does not have",
        test="tests/unit/archive/test_chain.py::test_the_link_that_was_stored_first_stays",
    ),
    Mutant(
        "archive-jumps-over-a-hole",
        "archive/tail.py",
        "        if self._gap and self._gap < self._behind_gap:\n",
        "        if self._gap and self._gap > self._behind_gap:\n",
        "what was trimmed before it was copied is claimed by the next link",
        test="tests/simulation/test_archive.py::test_records_that_were_trimmed_before_they_were_copied_are_a_hole",
    ),
    Mutant(
        "archive-children-not-recorded",
        "worker/copying.py",
        "        await self._lineage.created(children)\n",
        "",
        "a reader that comes late never learns of shards that the stream has forgotten",
        test="tests/simulation/test_archive.py::test_a_weekend_without_the_app_is_made_up_for_from_the_archive",
    ),
    Mutant(
        "child-forgotten-before-its-parent",
        "fleet/lister.py",
        "        first = [cursor for cursor in over if cursor.parent not in self.cursors]\n",
        "        first = list(over)\n",
        "an archive still lists the child of a finished shard: it is read a second time",
        test="tests/unit/fleet/test_leading.py::test_a_finished_cursor_is_deleted_after_that_of_its_parent",
    ),
)
