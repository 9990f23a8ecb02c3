"""Bugs of leases, commits and generations."""

from tests.mutants.mutant import Mutant

_SEND = """            await self._dynamodb.transact_write_items(
                TransactItems=request, ClientRequestToken=batch.id
            )
"""
_SEND_TWICE = """            for number, part in enumerate(({first}, {second})):
                if part:
                    await self._dynamodb.transact_write_items(
                        TransactItems=part, ClientRequestToken=f"{{number}}{{batch.id}}"
                    )
"""

MUTANTS = (
    # -- the condition of a commit -----------------------------------------------------------------
    Mutant(
        "halving-for-ever",
        "core/narrowing.py",
        "            self.most = changes // 2\n",
        "            self.most = changes // 2 + 1\n",
        "a commit with an invalid action is sent again and again, with as many changes",
        test="tests/unit/test_loop.py::test_an_action_that_cannot_be_stored_is_found_by_halving_and_its_change_alone_is_parked",
    ),
    Mutant(
        "behind-what-is-parked",
        "core/planning.py",
        "        return not self.parks\n",
        "        return self.room < 0\n",
        "a change that fails in its queue is parked there a second time",
        test="tests/unit/test_loop.py::test_a_host_that_does_not_park_leaves_what_is_behind_a_failure",
    ),
    Mutant(
        "overtaken-and-committed",
        "core/loop.py",
        "            self.pending = deque(verdict.left)\n",
        "            pass\n",
        "what another run has done is committed once more, or tried without end",
        test="tests/unit/test_loop.py::test_whatever_a_fence_answers_each_change_is_done_once_and_in_order",
    ),
    Mutant(
        "no-wait-where-parking-is-refused",
        "core/loop.py",
        "        self.left = not self.patient or self.stopping.is_set()\n",
        "        self.left = self.stopping.is_set()\n",
        "an invocation tries to park what cannot be stored until it is killed",
        test="tests/unit/test_loop.py::test_where_parking_is_refused_a_patient_host_waits_and_another_leaves_the_rest",
    ),
    Mutant(
        "no-owner-condition",
        "progress/cursor.py",
        """        Attr("owner").eq(cursor.owner)
        & Attr("epoch").eq(cursor.epoch)
        & Attr("generation")""",
        """        Attr("epoch").eq(cursor.epoch)
        & Attr("generation")""",
        "a commit does not ask which worker owns the cursor",
        "A3",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    Mutant(
        "no-epoch-condition",
        "progress/cursor.py",
        """        & Attr("epoch").eq(cursor.epoch)
        & Attr("generation")""",
        """        & Attr("generation")""",
        "a commit does not ask for the lease's epoch",
        "A3",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    Mutant(
        "no-owner-and-epoch-condition",
        "progress/cursor.py",
        """        Attr("owner").eq(cursor.owner)
        & Attr("epoch").eq(cursor.epoch)
        & Attr("generation")""",
        """        Attr("generation")""",
        "a commit asks neither for the owner nor for the epoch: zombies may write",
        "A3",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    Mutant(
        "no-generation-condition",
        "progress/cursor.py",
        """        & Attr("generation").eq(cursor.generation)
""",
        "",
        "a commit does not ask for the generation of handlers",
        "D8",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    Mutant(
        "no-position-and-commit-condition",
        "progress/cursor.py",
        """
        & Attr("position").eq(cursor.position)
        & Attr("commit").eq(cursor.commit)
""",
        "\n",
        "a commit does not ask what was committed before it, so that a late one counts twice",
        "A2",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    Mutant(
        "no-condition-at-all",
        "progress/cursor.py",
        "    action.guards.append(lease_guard(now))\n",
        "",
        "the cursor is moved without any condition",
        "A2 A3",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    # -- one transaction ---------------------------------------------------------------------------
    Mutant(
        "position-before-effects",
        "progress/commit.py",
        _SEND,
        _SEND_TWICE.format(first="request[:1]", second="request[1:]"),
        "the position is moved first and the effects follow, like a consumer that checkpoints early",
        "peers",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    Mutant(
        "effects-before-position",
        "progress/commit.py",
        _SEND,
        _SEND_TWICE.format(first="request[1:]", second="request[:1]"),
        "the effects go first and the position follows: at least once, like most consumers",
        "peers",
        test="tests/unit/test_commit.py::test_a_commit_is_conditional_on_owner_epoch_generation_position_and_commit",
    ),
    Mutant(
        "token-reused",
        "progress/commit.py",
        "TransactItems=request, ClientRequestToken=batch.id",
        "TransactItems=request, ClientRequestToken=self.cursor.name[:36]",
        "every commit of a cursor has the same client token",
        "peers",
        test="tests/unit/test_commit.py::test_after_a_time_out_the_same_plan_is_sent_again_under_the_same_token",
    ),
    Mutant(
        "commit-id-not-written",
        "progress/cursor.py",
        '        "commit": {"S": commit},\n',
        '        "commit": {"S": now.commit},\n',
        "the cursor does not say which commit it has last taken",
        "A6",
        test="tests/unit/test_leases.py::test_the_cursor_names_its_commit_the_handlers_that_are_done_and_its_holds",
    ),
    Mutant(
        "losing-plan-adopted",
        "progress/commit.py",
        "        return self._applied(self._sent[there.commit])\n",
        "        return self._applied(list(self._sent.values())[-1])\n",
        "after a time-out the plan sent last is taken for the one that has won",
        "A6 A7",
        test="tests/unit/test_commit.py::test_a_plan_that_won_late_is_adopted_instead_of_the_newer_one",
    ),
    Mutant(
        "position-reached-so-adopted",
        "progress/commit.py",
        """            or there.commit not in self._sent
        ):
            raise LeaseLost(f"cursor {mine.name}: another worker has it, or an unknown commit won")
        log.info("commit.adopted", cursor=mine.name, commit=there.commit)
        return self._applied(self._sent[there.commit])
""",
        """        ):
            raise LeaseLost(mine.name)
        target = list(self._sent.values())[-1]
        if there.position != target.cursor.position:
            raise LeaseLost(mine.name)
        return self._applied(target)
""",
        "the cursor is where my plan wanted it, so my plan has won",
        "A6",
        test="tests/unit/test_commit.py::test_an_unknown_commit_under_my_own_lease_drops_the_lease",
    ),
    Mutant(
        "lost-lease-ignored",
        "progress/commit.py",
        """            or (there.owner, there.epoch, there.generation)
            != (mine.owner, mine.epoch, mine.generation)
""",
        "",
        "a refused cursor is not compared with the lease, only with the commits that were sent",
        "A3",
        test="tests/unit/test_leases.py::test_a_lease_that_was_taken_after_my_commit_won_is_lost_all_the_same",
    ),
    Mutant(
        "refused-is-applied",
        "progress/commit.py",
        "            return RefusedCommit(sources) if sources else Again(throttled=False)\n",
        "            return self._applied(batch)\n",
        "a commit refused for an effect's condition is taken for done",
        test="tests/unit/test_commit.py::test_a_plan_that_won_late_is_adopted_instead_of_the_newer_one",
    ),
    Mutant(
        "refused-is-dropped",
        "core/loop.py",
        "            await self._refused(verdict)\n",
        "            self._drop(plan)\n",
        "changes whose commit was refused are dropped",
        test="tests/simulation/test_adversary.py::test_two_refused_effects_of_one_result_park_it_once",
    ),
    Mutant(
        "conflict-is-a-lost-lease",
        "progress/commit.py",
        "        if verdict is not None:\n            return verdict\n",
        "        if verdict == Again(throttled=False):\n"
        "            raise LeaseLost(self.cursor.name)\n"
        "        if verdict is not None:\n"
        "            return verdict\n",
        "a transaction conflict is read as a lost lease",
        "peers",
        test="tests/unit/test_commit.py::test_conflicts_and_throttling_are_never_a_lost_lease",
    ),
    Mutant(
        "done-mark-not-written",
        "progress/control.py",
        '    sets = {"done": cursor.done, "holds"',
        '    sets = {"holds"',
        "which handlers are done with a change that needs several commits is not in the table",
        "D13",
        test="tests/unit/test_leases.py::test_the_cursor_names_its_commit_the_handlers_that_are_done_and_its_holds",
    ),
    Mutant(
        "third-commit-forgets-the-first-in-a-worker",
        "core/planning.py",
        "                done |= offered\n",
        "                done = offered\n",
        "of a change in three commits, the handlers of the first one apply it twice after a death",
        test="tests/simulation/test_several_commits.py::test_a_change_of_several_commits_is_applied_once_whichever_its_host_died_after",
    ),
    Mutant(
        "invalid-hides-the-cursor",
        "progress/commit.py",
        "            return await self._invalid(Invalid(effects, verdict.code))\n",
        "            invalid = Invalid(effects, verdict.code)\n"
        "            return invalid if effects else await self._invalid(invalid)\n",
        "a zombie, or the plan before, blames a handler's result, because it is invalid by now",
        test="tests/unit/test_commit.py::test_an_invalid_action_does_not_hide_a_plan_that_won_late",
    ),
    Mutant(
        "invalid-request-hides-the-cursor",
        "progress/commit.py",
        "            return await self._invalid(Invalid(effects, verdict.code))\n",
        "            invalid = Invalid(effects, verdict.code)\n"
        "            return await self._invalid(invalid) if effects else invalid\n",
        "a zombie blames a handler's result, because it is invalid by now",
        test="tests/unit/test_commit.py::test_an_invalid_action_does_not_hide_a_lost_lease",
    ),
    Mutant(
        "invalid-condition-asked-for-ever",
        "progress/probing.py",
        '_NEVER = ("ConditionalCheckFailed", "ValidationError")\n',
        '_NEVER = ("ConditionalCheckFailed",)\n',
        "a condition that cannot be asked stops its shard for ever",
        test="tests/unit/test_commit.py::test_a_condition_that_cannot_be_asked_is_asked_once",
    ),
    Mutant(
        "reasons-beside-an-invalid-action",
        "local/transactions.py",
        "    if invalid:\n        reasons = [",
        "    if not invalid:\n        reasons = [",
        "the engine says what AWS hides, and what is concluded from it goes wrong there",
        test="tests/unit/local/test_transactions.py::test_the_first_invalid_action_is_the_only_one_with_a_reason",
    ),
    Mutant(
        "adopted-with-the-later-plans-holds",
        "core/loop.py",
        "            await self.adopt(verdict.batch)\n",
        "            await self.adopt(verdict.batch)\n            self.queued_keys.begin(plan.queued)\n",
        "an earlier plan won, and a change that only a later one queued falls out of its queue",
        test="tests/simulation/test_adversary.py::test_a_plan_that_parks_and_wins_late_holds_what_it_parks_and_not_what_a_later_plan_would",
    ),
    Mutant(
        "seen-too-early",
        "core/stage.py",
        "        seen = self.seen if plan.changes == len(pending) else self.cursor.seen\n",
        "        seen = self.seen\n",
        "a cursor says that its shard is read to the tip while read changes are not committed",
        test="tests/simulation/test_protocol.py::test_a_change_that_was_read_and_never_committed_is_not_called_seen",
    ),
    # -- take and release --------------------------------------------------------------------------
    Mutant(
        "epoch-reset-on-release",
        "progress/cursor.py",
        '        action.removes |= {"owner", "takes", "trying", "tries"}\n',
        '        action.removes |= {"owner", "takes", "trying", "tries"}\n'
        '        action.sets["epoch"] = {"N": "0"}\n',
        "a release starts the epochs again",
        "A5",
        test="tests/unit/test_leases.py::test_each_take_has_an_epoch_of_its_own_also_after_a_release",
    ),
    Mutant(
        "epoch-not-raised",
        "progress/cursor.py",
        '            "epoch": {"N": str(cursor.epoch + 1)},\n',
        '            "epoch": {"N": str(cursor.epoch)},\n',
        "a take leaves the epoch as it is",
        "A5",
        test="tests/unit/test_leases.py::test_each_take_has_an_epoch_of_its_own_also_after_a_release",
    ),
    Mutant(
        "take-without-condition",
        "progress/cursor.py",
        "read_cursor(await self.write(action.only_if(condition)))",
        "read_cursor(await self.write(action))",
        "a cursor is taken whoever has taken it since it was read",
        "A3",
        test="tests/unit/test_leases.py::test_a_cursor_changed_since_it_was_read_is_not_taken",
    ),
    Mutant(
        "take-ignores-generation",
        "progress/cursor.py",
        '        condition = Attr("epoch").eq(cursor.epoch) & Attr("generation").lte(generation)\n',
        '        condition = Attr("epoch").eq(cursor.epoch)\n',
        "an older roll-out takes a cursor of a newer one",
        "D9",
        test="tests/unit/test_leases.py::test_a_roll_out_does_not_take_a_cursor_of_a_newer_one",
    ),
    Mutant(
        "take-that-lost-believed",
        "progress/cursor.py",
        "            if now is None or now.owner != owner or now.epoch != cursor.epoch + 1:\n",
        "            if now is None:\n",
        "a take that was refused is taken for one whose reply was lost",
        test="tests/unit/test_leases.py::test_a_cursor_changed_since_it_was_read_is_not_taken",
    ),
    Mutant(
        "release-without-condition",
        "progress/cursor.py",
        "            await self.write(action.only_if(condition))",
        "            await self.write(action)",
        "a worker gives up a cursor that another one has taken meanwhile",
        test="tests/unit/test_leases.py::test_an_owner_that_was_replaced_does_not_release_its_successors_lease",
    ),
    # -- generations -------------------------------------------------------------------------------
    Mutant(
        "rebuild-not-marked",
        "fleet/generation.py",
        "rebuild=(newest.rebuild | missed) - gone,\n",
        "rebuild=newest.rebuild - gone,\n",
        "an aggregate that missed changes is live at once",
        "D10 D11",
        test="tests/unit/test_leases.py::test_what_missed_changes_needs_a_rebuild_until_it_is_gone",
    ),
    Mutant(
        "rebuild-forgotten",
        "fleet/generation.py",
        "rebuild=(newest.rebuild | missed) - gone,\n",
        "rebuild=frozenset(missed - gone),\n",
        "a later roll-out makes an aggregate live that still needs its rebuild",
        "D11",
        test="tests/unit/test_leases.py::test_what_missed_changes_needs_a_rebuild_until_it_is_gone",
    ),
    Mutant(
        "generation-without-condition",
        "fleet/generation.py",
        "    return action.only_if(absent if newest is None else _as_read(newest))\n",
        "    return action\n",
        "two roll-outs at the same moment start the same generation",
        "D10",
        test="tests/unit/test_leases.py::test_two_roll_outs_at_the_same_moment_start_one_generation_each",
    ),
    Mutant(
        "left-over-takes-over",
        "fleet/joining.py",
        "        if newest is not None and fingerprint in newest.known and not take_over:\n",
        "        if newest is None and not fingerprint:\n",
        "a left-over worker of an older roll-out starts a generation and wipes out the new one",
        "D3",
        test="tests/unit/test_leases.py::test_a_left_over_roll_out_stands_by",
    ),
    Mutant(
        "unknown-is-applied",
        "progress/commit.py",
        "            return None\n\n        return await until_known",
        "            return self._applied(batch)\n\n        return await until_known",
        "a commit whose answer never came is taken for applied: its changes are lost",
        test="tests/simulation/test_fences.py::test_a_commit_that_meets_trouble_is_applied_once[cursor-lost_request]",
    ),
    Mutant(
        "all-have-their-turn-at-once",
        "core/runs.py",
        "            await self.turn.give_way()\n            began =",
        "            began =",
        "many async handlers that are slow run one after the other, and the worker sends no heartbeat",
        test="tests/simulation/test_slow_handlers.py::test_heartbeats_go_on_while_a_slow_handler_works_off_a_page",
    ),
    Mutant(
        "released-as-a-death",
        "progress/cursor.py",
        'action.removes |= {"owner", "takes", "trying", "tries"}',
        'action.removes |= {"owner", "takes"}',
        "orderly hand-overs make a change look as if it killed its workers: it is parked unrun",
        test="tests/unit/test_leases.py::test_an_owner_that_gives_its_lease_back_has_not_died_of_a_change",
    ),
    Mutant(
        "unprocessed-keys-dropped",
        "progress/fetch.py",
        "left = again + left[_BATCH_GET:]",
        "left = left[_BATCH_GET:]",
        "items that a throttled read left out count as absent",
        test="tests/unit/test_fetch.py::test_each_item_that_is_there_is_found_once_however_few_a_reply_has_room_for",
    ),
    Mutant(
        "more-keys-than-a-call-takes",
        "progress/fetch.py",
        '"Keys": left[:_BATCH_GET]',
        '"Keys": left[: _BATCH_GET + 1]',
        "a read of more than a hundred items is refused",
        test="tests/unit/test_fetch.py::test_each_item_that_is_there_is_found_once_however_few_a_reply_has_room_for",
    ),
    Mutant(
        "throttled-read-repeated-at-once",
        "progress/fetch.py",
        "            await anyio.sleep(0.2)  # all",
        "            pass  # all",
        "a table that throttles is asked again without a pause",
        test="tests/unit/test_fetch.py::test_a_read_of_which_nothing_was_served_is_repeated_after_a_pause",
    ),
    Mutant(
        "end-at-an-empty-page",
        "progress/fetch.py",
        '        if "LastEvaluatedKey" not in reply:',
        '        if not reply.get("Items"):',
        "a scan ends at its first page without items",
        test="tests/unit/test_fetch.py::test_a_scan_goes_on_until_there_is_no_further_key_though_a_page_may_be_empty",
    ),
    Mutant(
        "asked-for-by-whole-items",
        "progress/fetch.py",
        "wanted = [item_ref(schema, key).key(schema) for key in keys]",
        "wanted = [dict(key) for key in keys]",
        "a read by items instead of keys is refused",
        test="tests/unit/test_fetch.py::test_items_are_named_by_their_key_and_asked_for_by_it_alone",
    ),
    Mutant(
        "dropped-shard-begins-a-task",
        "progress/activity.py",
        "                if not scope.cancel_called:  # otherwise it would run to its first await\n                    result",
        "                if True:\n                    result",
        "a task of a shard that is lost already does its first step",
        test="tests/unit/test_activity.py::test_what_was_to_begin_when_the_shard_is_dropped_does_nothing_at_all",
    ),
    Mutant(
        "more-at-a-time-than-may-be",
        "progress/activity.py",
        "for _ in range(most):",
        "for _ in range(most + 1):",
        "one more call at a time is made than may be",
        test="tests/unit/test_activity.py::test_each_thing_is_worked_on_once_and_no_more_of_them_at_a_time_than_may_be",
    ),
    Mutant(
        "another-token-for-each-try",
        "progress/transaction.py",
        "ClientRequestToken=token",
        "ClientRequestToken=uuid.uuid4().hex",
        "the repetition of a transaction whose reply was lost is refused by its own success",
        test="tests/unit/test_transaction.py::test_what_passes_is_sent_again_with_the_same_token_and_growing_pauses",
    ),
    Mutant(
        "refused-though-all-holds",
        "progress/transaction.py",
        "return RefusedCommit(sources) if sources else None",
        "return RefusedCommit(sources)",
        "a refusal names nobody, and its change is done without its effects",
        test="tests/unit/test_transaction.py::test_where_every_condition_holds_by_now_the_transaction_is_sent_again",
    ),
    Mutant(
        "all-actions-blamed",
        "progress/transaction.py",
        "[actions[place] for place in verdict.items]",
        "actions",
        "effects whose conditions hold are dropped with the one that was refused",
        test="tests/unit/test_transaction.py::test_where_every_condition_holds_by_now_the_transaction_is_sent_again",
    ),
    Mutant(
        "throttling-counted-as-conflict",
        "progress/transaction.py",
        " and not is_throttled(reply):",
        ":",
        "the metric of conflicts counts throttling",
        test="tests/unit/test_transaction.py::test_conflicts_are_counted_and_neither_throttling_nor_what_has_no_answer",
    ),
    Mutant(
        "fence-left-out",
        "progress/fenced.py",
        "everything = actions if mine else [*actions, fence]",
        "everything = actions",
        "what was decided on an item that has changed since is written",
        test="tests/unit/test_fenced.py::test_nothing_is_written_once_the_item_has_changed",
    ),
    Mutant(
        "fence-twice-on-an-item",
        "progress/fenced.py",
        "everything = actions if mine else [*actions, fence]",
        "everything = [*actions, fence]",
        "a step of an operation that writes its own state is refused as invalid",
        test="tests/unit/test_fenced.py::test_an_action_on_the_item_itself_carries_the_condition",
    ),
    Mutant(
        "any-refusal-is-a-lost-lease",
        "progress/fenced.py",
        "if sent is not None and (isinstance(sent, Invalid) or OURS in sent.sources):",
        "if sent is not None:",
        "an action whose own condition does not hold ends the process that leads",
        test="tests/unit/test_fenced.py::test_a_condition_of_an_action_itself_that_does_not_hold_is_no_lost_lease",
    ),
    Mutant(
        "no-room-for-the-fence",
        "progress/fenced.py",
        "TOGETHER = 99",
        "TOGETHER = 100",
        "a hundred items at a time and the fence are more than a transaction takes",
        test="tests/unit/test_fenced.py::test_more_items_than_a_transaction_holds_are_written_and_deleted_in_several",
    ),
)
