"""Bugs of shards: lineage, the lister, reading, positions without effects."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "loss-settled-before-commits",
        "worker/pipeline.py",
        "        await self.stage.until_quiet()\n        pause = await self.reading.losses",
        "        pause = await self.reading.losses",
        "a loss is passed in the cursor while changes before it are not committed",
        test="tests/unit/test_pipeline.py::test_a_loss_is_settled_once_all_before_it_is_committed_and_is_passed_only_then",
    ),
    Mutant(
        "flawed-page-all-at-once",
        "worker/pipeline.py",
        "        if self._one_by_one.suspects:\n            await self._process_singly(page)\n            return\n",
        "",
        "a change that kills workers is never found in a page that has an unreadable record",
        test="tests/unit/test_pipeline.py::test_a_flawed_page_of_a_suspected_shard_runs_one_by_one_too",
    ),
    Mutant(
        "stop-waits-for-a-page",
        "worker/pipeline.py",
        "        if self._reading is not None:\n            self._reading.cancel()\n",
        "",
        "a shard is handed over seconds later, when its page has come",
        test="tests/unit/test_pipeline.py::test_a_shard_that_stops_does_not_wait_for_the_page_that_it_is_reading",
    ),
    Mutant(
        "left-and-kept",
        "worker/pipeline.py",
        "done = stage.stopping.is_set() or stage.left or (",
        "done = stage.stopping.is_set() or (",
        "a shard whose rest was left is kept, and nobody reads it",
        test="tests/unit/test_pipeline.py::test_a_shard_is_closed_once_it_is_at_its_end_or_its_rest_is_left",
    ),
    # -- commits -----------------------------------------------------------------------------------
    Mutant(
        "left-behind-a-position",
        "worker/pipeline.py",
        """                elif not stage.pending and stage.persist_due <= 0:
                    await self.checkpoints.position()
                else:
                    return
""",
        """                elif not stage.pending and stage.persist_due <= 0:
                    await self.checkpoints.position()
                    return
                else:
                    return
""",
        "changes that come while a position is written alone wait for ever",
        "",
        test="tests/unit/test_pipeline.py::test_what_comes_while_a_position_is_written_is_not_left_lying",
    ),
    # -- lineage -----------------------------------------------------------------------------------
    Mutant(
        "children-before-parents",
        "stream/lineage.py",
        "        if parent is not None and not parent.finished:\n            continue\n",
        "",
        "a child gets a cursor while its parent is being read",
        "B5 B7",
        test="tests/unit/test_lineage.py::test_an_unfinished_parent_holds_back_its_children_even_unlisted",
    ),
    Mutant(
        "unlisted-parent-is-gone",
        "stream/lineage.py",
        "                probe.add(shard.parent)\n                continue\n",
        "                probe.add(shard.parent)\n",
        "a parent that is not listed counts as trimmed, and nobody asks for it",
        "B9",
        test="tests/unit/test_lineage.py::test_an_unlisted_parent_is_asked_about_before_its_child_begins",
    ),
    Mutant(
        "every-parent-is-gone",
        "stream/listing.py",
        "        raise\n    return False\n",
        "        raise\n    return True\n",
        "a parent that is readable but not listed is taken for trimmed",
        "B9",
        test="tests/simulation/test_protocol.py::test_a_child_waits_for_a_parent_that_is_readable_but_not_listed",
    ),
    Mutant(
        "open-parent-blocks-children",
        "stream/lineage.py",
        "        if parent is not None and not parent.finished:\n",
        "        listed_open = shard.parent in shards and shards[shard.parent].ending is None\n"
        "        if parent is not None and (not parent.finished or listed_open):\n",
        "the children of a finished parent that is listed open wait until it is trimmed",
        "B8",
        test="tests/unit/test_lineage.py::test_a_finished_parent_releases_its_children_however_it_is_listed",
    ),
    Mutant(
        "new-tree-holds-nothing",
        "fleet/lister.py",
        "        return [replace(c, chunks=chunks) if c.name in orphans else c for c in cursors]\n",
        "        return list(cursors)\n",
        "what began while nobody read overtakes what is parked of before",
        test="tests/simulation/test_losses.py::test_a_queue_stays_held_over_shards_that_came_and_went_unread",
    ),
    Mutant(
        "late-children-forgotten",
        "stream/lineage.py",
        "        if parent is not None and not parent.finished:\n",
        "        if parent is not None and (not parent.finished or shard.parent in shards):\n",
        "what the children's look-up does not name at the parent's end never gets a cursor",
        "B2 B4",
        test="tests/unit/test_lineage.py::test_a_finished_parent_releases_its_children_however_it_is_listed",
    ),
    Mutant(
        "empty-children-are-final",
        "fleet/lister.py",
        "            await self._create(made)\n            created += made\n",
        "            made = [c for c in made if c.parent not in self.cursors]\n"
        "            await self._create(made)\n            created += made\n",
        "an empty answer about children is final: no lister makes their cursors later",
        "B4",
        test="tests/simulation/test_protocol.py::test_cursors_are_created_in_a_commit_of_their_parent_or_of_the_lister",
    ),
    Mutant(
        "children-created-after-the-finish",
        "core/checkpoints.py",
        "            actions = [action for child in new for action in creation(space, child)]\n"
        "            batch = Batch(finished, fold(actions))\n"
        "            verdict = await self._sent(batch)\n",
        """            actions = [action for child in new for action in creation(space, child)]
            batch = Batch(finished, [])
            verdict = await self._sent(batch)
            if isinstance(verdict, Applied) and actions:
                from random import Random
                from streamkit.progress.transaction import transact
                store = stage.queued_keys.store
                schema = store.space.schema
                await transact(store.dynamodb, {schema.name: schema}, fold(actions), Random())
""",
        "the children's cursors are not in the transaction that finishes their parent",
        "B2",
        test="tests/simulation/test_mutant_gaps.py::test_the_end_of_a_shard_makes_its_child_at_once_with_the_queues_that_it_holds",
    ),
    Mutant(
        "generation-of-the-lister",
        "progress/control.py",
        "        generation=max(parent.generation, generation),\n",
        "",
        "a late child starts in its lister's generation instead of its parent's",
        "D12",
        test="tests/unit/fleet/test_gaps.py::test_a_child_carries_what_its_parent_knew",
    ),
    Mutant(
        "hold-lost-at-a-late-child",
        "progress/control.py",
        "        chunks=parent.chunks,\n",
        "",
        "a child made by the lister does not inherit its parent's holds",
        "C9",
        test="tests/unit/fleet/test_gaps.py::test_a_child_carries_what_its_parent_knew",
    ),
    Mutant(
        "hold-lost-at-a-split",
        "core/checkpoints.py",
        "            heirs = [replace(c, chunks=finished.chunks, seen=seen, dated=dated) for c in children]\n",
        "            heirs = [replace(c, chunks=frozenset(), seen=seen, dated=dated) for c in children]\n",
        "a child made by its parent's end does not inherit its holds",
        "C7",
        test="tests/simulation/test_mutant_gaps.py::test_the_end_of_a_shard_makes_its_child_at_once_with_the_queues_that_it_holds",
    ),
    Mutant(
        "finished-with-changes-pending",
        "worker/pipeline.py",
        "        if self.reader.ended and not (self.stage.pending or self._broken_off):\n",
        "        if self.reader.ended and not self._broken_off:\n",
        "a shard is finished although changes of its last page are not committed",
        "B15",
        test="tests/simulation/test_protocol.py::test_a_stopped_worker_does_not_finish_a_shard_whose_last_change_is_blocked",
    ),
    # -- the lister --------------------------------------------------------------------------------
    Mutant(
        "lister-asks-on-after-a-long-answer",
        "fleet/lister.py",
        "        if self.clock.monotonic() - self._sure_at > _LONG_SECONDS:\n",
        "        if self.clock.monotonic() < self._sure_at:\n",
        "a leader that stood still asks beside the next one, for more than the stream answers",
        test="tests/unit/fleet/test_leading.py::test_a_leader_that_stood_still_while_it_listed_asks_no_more_once_another_leads",
    ),
    Mutant(
        "lister-not-fenced",
        "fleet/lister.py",
        "            verdict = await self.committer.commit(batch)\n",
        "            from random import Random\n"
        "            from streamkit.progress.transaction import transact\n"
        "            space = self.store.space\n"
        "            verdict = await transact(\n"
        "                self.store.dynamodb, {space.schema.name: space.schema}, actions, Random()\n"
        "            ) or Applied(batch)\n",
        "what the lister creates does not commit with its own cursor: a zombie may create",
        "B11 B12",
        test="tests/simulation/test_protocol.py::test_cursors_are_created_in_a_commit_of_their_parent_or_of_the_lister",
    ),
    Mutant(
        "swept-while-listed",
        "stream/lineage.py",
        "        if cursor.finished and cursor.name not in ids and now - cursor.ended > keep_seconds\n",
        "        if cursor.finished and now - cursor.ended > keep_seconds\n",
        "a finished cursor goes while its shard can be listed: the shard is read again",
        "B13",
        test="tests/unit/test_lineage.py::test_a_finished_cursor_stays_while_its_shard_can_be_listed",
    ),
    Mutant(
        "swept-at-once",
        "stream/lineage.py",
        "        if cursor.finished and cursor.name not in ids and now - cursor.ended > keep_seconds\n",
        "        if cursor.finished and cursor.name not in ids\n",
        "a finished cursor goes when one listing lacks its shard",
        "B13",
        test="tests/unit/test_lineage.py::test_a_finished_cursor_stays_while_its_shard_can_be_listed",
    ),
    Mutant(
        "child-put-unconditionally",
        "progress/cursor.py",
        '    put.guards.append((Guard(absent), GuardSource("", cursor.name, CHILD)))\n',
        "",
        "a cursor is created anew although the shard has one",
        "B11",
        test="tests/unit/test_leases.py::test_a_cursor_is_created_once",
    ),
    # -- reading -----------------------------------------------------------------------------------
    Mutant(
        "latest-after-expiry",
        "stream/iterators.py",
        "            self._iterator = None\n            return\n",
        '            self._iterator = await self._iterator_at(ShardIteratorType="LATEST")\n'
        "            return\n",
        "an expired iterator is replaced by one at LATEST",
        "peers",
        test="tests/unit/test_reader.py::test_an_expired_iterator_is_opened_again_after_the_last_record_read",
    ),
    Mutant(
        "horizon-after-expiry",
        "stream/iterators.py",
        "            self._iterator = None\n            return\n",
        '            self._iterator = await self._iterator_at(ShardIteratorType="TRIM_HORIZON")\n'
        "            return\n",
        "an expired iterator is replaced by one at the horizon: a day is read again",
        "peers",
        test="tests/unit/test_reader.py::test_an_expired_iterator_is_opened_again_after_the_last_record_read",
    ),
    Mutant(
        "at-instead-of-after",
        "stream/iterators.py",
        'ShardIteratorType="AFTER_SEQUENCE_NUMBER"',
        'ShardIteratorType="AT_SEQUENCE_NUMBER"',
        "a reader opens at its position instead of after it, and fails once that is trimmed",
        "peers",
        test="tests/unit/test_reader.py::test_an_expired_iterator_is_opened_again_after_the_last_record_read",
    ),
    Mutant(
        "overlap-not-dropped",
        "stream/read_progress.py",
        "        if self.position != START and records[0].position <= self.position:\n",
        "        if not self.shard_id:\n",
        "records of a page that is served twice are processed twice",
        "peers",
        test="tests/unit/test_reader.py::test_what_was_read_before_is_dropped_from_a_page_and_nothing_else",
    ),
    Mutant(
        "first-record-decides-overlap",
        "stream/read_progress.py",
        "            records = tuple(r for r in records if r.position > self.position)\n",
        "            records = ()\n",
        "a page that overlaps with the last one is dropped whole",
        "peers",
        test="tests/unit/test_reader.py::test_what_was_read_before_is_dropped_from_a_page_and_nothing_else",
    ),
    Mutant(
        "final-page-dropped",
        "worker/pipeline.py",
        "        if page is None:\n",
        "        if page is None or self.reader.ended:\n",
        "the records of a shard's last page are dropped",
        "peers",
        test="tests/simulation/test_mutant_gaps.py::test_a_last_page_that_was_broken_off_is_gone_on_with_by_the_next_owner",
    ),
    Mutant(
        "empty-page-ends-a-shard",
        "stream/reader.py",
        "        self.ended = page.next_iterator is None\n",
        "        self.ended = page.next_iterator is None or self._empty > 3\n",
        "some empty pages are taken for the end of a shard",
        "peers",
        test="tests/unit/test_reader.py::test_the_last_page_carries_its_records_and_ends_the_shard",
    ),
    Mutant(
        "loss-at-the-horizon-hidden",
        "stream/iterators.py",
        "            if trouble_of(error) is not ErrorKind.TRIMMED or not self.is_explained():\n",
        "            if trouble_of(error) is not ErrorKind.TRIMMED:\n",
        "records trimmed behind a position are skipped in silence",
        "peers",
        test="tests/unit/test_reader.py::test_a_position_trimmed_on_a_shard_not_seen_lately_is_a_loss",
    ),
    Mutant(
        "loss-of-a-first-record-hidden",
        "stream/iterators.py",
        "            if self.may_be_trimmed_unread:\n",
        "            if not self.clock:\n",
        "records trimmed before their shard was ever read are skipped in silence",
        "peers",
        test="tests/unit/test_reader.py::test_a_shard_never_read_for_longer_than_the_retention_is_a_loss",
    ),
    Mutant(
        "quiet-shard-called-lost",
        "stream/read_progress.py",
        "        return self._is_fresh() and not self._is_young()\n",
        "        return False\n",
        "a quiet shard, whose last record is trimmed, stops with a loss that did not happen",
        "B15",
        test="tests/unit/test_reader.py::test_an_old_position_is_no_loss_if_its_shard_was_at_its_tip_23_hours_ago",
    ),
    Mutant(
        "early-trim-jumped-over",
        "stream/read_progress.py",
        "        return self._is_fresh() and not self._is_young()\n",
        "        return self._is_fresh()\n",
        "a recent position behind a trim jumps to the oldest record in silence",
        "peers",
        test="tests/unit/test_reader.py::test_a_recent_position_that_is_trimmed_is_a_possible_loss_wherever_it_is_noticed",
    ),
    Mutant(
        "young-consumer-loses-nothing",
        "stream/read_progress.py",
        " and self._is_fresh() and not had_time\n",
        " and self._is_fresh()\n",
        "a shard that goes unread within a day of the founding is passed over in silence",
        test="tests/simulation/test_losses.py::test_a_shard_that_goes_unread_within_a_day_of_the_founding_is_a_loss",
    ),
    Mutant(
        "first-records-by-an-exact-clock",
        "stream/read_progress.py",
        "_UNREAD_SECONDS = RETENTION_SECONDS - 900\n",
        "_UNREAD_SECONDS = RETENTION_SECONDS\n",
        "a machine whose clock is behind skips the first records of a shard that was never read",
        test="tests/unit/test_reader.py::test_first_records_may_be_trimmed_though_a_clock_is_ten_minutes_behind",
    ),
    Mutant(
        "fresh-for-25-hours",
        "stream/read_progress.py",
        "_SAFE_SECONDS = RETENTION_SECONDS - 3600\n",
        "_SAFE_SECONDS = RETENTION_SECONDS + 3600\n",
        "a shard last seen at its tip 23 to 25 hours ago counts as read up to the horizon",
        "peers",
        test="tests/unit/test_reader.py::test_an_old_position_is_no_loss_if_its_shard_was_at_its_tip_23_hours_ago",
    ),
    Mutant(
        "date-of-a-position-not-committed",
        "progress/cursor.py",
        '    numbers["dated"] = cursor.dated\n',
        "",
        "a cursor does not say how old its position is, so that an early trim looks like an old one",
        test="tests/simulation/test_losses.py::test_a_recent_position_behind_a_trim_is_a_possible_loss_and_never_a_jump",
    ),
    Mutant(
        "date-of-a-position-not-planned",
        "core/planning.py",
        "            position, dated, done = change.position, int(change.dated), frozenset()\n",
        "            position, done = change.position, frozenset()\n",
        "a commit keeps the age of the position before",
        test="tests/unit/test_planning.py::test_changes_without_effects_move_the_position_only",
    ),
    Mutant(
        "early-trim-said-for-ever",
        "core/stage.py",
        "        self.seen, self._dated = max(self.seen, seen), 0\n",
        "        self.seen = max(self.seen, seen)\n",
        "a loss that was settled stops the next worker again",
        test="tests/simulation/test_losses.py::test_an_early_trim_that_was_settled_is_not_said_again_by_the_next_worker",
    ),
    Mutant(
        "unserved-record-called-gone",
        "core/parked/payload.py",
        "    return _UNSERVED\n",
        "    return _GONE\n",
        "some empty pages make a parked change stuck, and tell a person to discard it",
        test="tests/unit/test_payload.py::test_empty_pages_say_nothing_of_the_record_of_a_parked_change",
    ),
    Mutant(
        "batch-cut-short-in-silence",
        "core/parked/payload.py",
        "    raise RetentionLost(text, shard=shard)\n",
        "    return tuple(found)\n",
        "what a mapping gave up is processed as far as some empty pages, and the rest is dropped",
        test="tests/unit/test_payload.py::test_a_batch_that_is_not_served_to_its_end_is_a_possible_loss",
    ),
    # -- positions without effects -----------------------------------------------------------------
    Mutant(
        "own-records-cause-commits",
        "progress/pacing.py",
        "        seconds = self.pacing.checkpoint_seconds if self._traffic else quiet\n",
        "        seconds = self.pacing.checkpoint_seconds\n",
        "the position is written for pages of own records, whose write is the next page",
        "peers",
        test="tests/simulation/test_protocol.py::test_no_page_of_own_records_moves_a_position",
    ),
    Mutant(
        "own-records-are-traffic",
        "core/dispatch.py",
        "                self.counts.control += 1\n                continue\n            traffic += 1\n",
        "                self.counts.control += 1\n                traffic += 1\n"
        "                continue\n            traffic += 1\n",
        "own records keep polling fast and positions moving",
        "peers",
        test="tests/simulation/test_protocol.py::test_no_page_of_own_records_moves_a_position",
    ),
    Mutant(
        "position-written-for-every-page",
        "progress/pacing.py",
        "        return self._written_at + seconds - self.clock.monotonic()\n",
        "        return min(seconds, 0.0)\n",
        "each page moves the position at once, whatever is in it",
        "peers",
        test="tests/simulation/test_protocol.py::test_no_page_of_own_records_moves_a_position",
    ),
    Mutant(
        "dropped-by-number",
        "core/stage.py",
        "        while position != START and pending and pending[0].position <= position:\n",
        "        number = iter(range(plan.changes))\n"
        "        while pending and next(number, None) is not None:\n",
        "a plan that wins late drops as many changes as it had, not those it had",
        "A7",
        test="tests/unit/test_stage.py::test_a_plan_that_wins_late_finishes_what_is_up_to_its_position_and_nothing_behind_it",
    ),
)
