"""Bugs that the replays of the models find: the code goes where its model does not."""

from tests.mutants.mutant import Mutant

_LEASE = "tests/models/test_leased_commit.py::test_the_code_goes_where_random_schedules_go"
_QUEUE = "tests/models/test_parked_queue.py::test_the_code_goes_where_random_schedules_go"
_ROLL_OUTS = "tests/models/test_generations.py::test_the_code_goes_where_random_schedules_go"
_LINEAGE = "tests/models/test_lineage.py::test_the_code_goes_where_random_schedules_go"

MUTANTS = (
    Mutant(
        "replay-of-no-such-key",
        "operate/replay/parts.py",
        "            self._seen.add(key)\n",
        "            self._seen.update(self.keys)\n",
        "a replay of a key that was mistyped ends as if all had run",
        test="tests/unit/test_replay_keys.py::test_keys_of_which_no_change_was_read_are_named_as_they_were_given",
    ),
    Mutant(
        "replay-by-the-machines-clock",
        "operate/replay/replay.py",
        "        machine = replace(machine, clock=past.clock)  # the table's: this machine's may be wrong\n",
        "",
        "a machine whose clock is behind refuses the changes of the last hours",
        test="tests/acceptance/test_cli_replay.py::test_commands_of_a_machine_whose_clock_is_wrong_take_moments_by_the_tables",
    ),
    Mutant(
        "rewind-by-the-machines-clock",
        "operate/rewind.py",
        "    clock = await store.clock(clock or SystemClock())  # this machine's may be hours wrong\n",
        "    clock = clock or SystemClock()\n",
        "a machine whose clock is wrong refuses moments, or begins in the future",
        test="tests/simulation/test_rewind.py::test_a_rewind_takes_its_moment_by_the_tables_clock",
    ),
    Mutant(
        "pause-by-the-machines-clock",
        "operate/consumers.py",
        '    said = said_of(await store.clock(clock or SystemClock()), "pause")\n',
        '    said = said_of(clock or SystemClock(), "pause")\n',
        "functions are rewound while one of them may still run",
        test="tests/simulation/test_lambda_operations.py::test_a_rewind_asks_for_a_pause_that_outlasts_what_has_begun",
    ),
    Mutant(
        "adopted-across-generations",
        "progress/commit.py",
        """            or (there.owner, there.epoch, there.generation)
            != (mine.owner, mine.epoch, mine.generation)
""",
        """            or (there.owner, there.epoch)
            != (mine.owner, mine.epoch)
""",
        "an owner whose cursor was raised goes on in its old generation from a plan of its own",
        test=_LEASE,
    ),
    Mutant(
        "the-newest-plan-forgotten",
        "progress/commit.py",
        "            del self._sent[next(iter(self._sent))]\n",
        "            del self._sent[next(reversed(self._sent))]\n",
        "a worker that has sent many plans in doubt forgets the one that it has just sent",
        test=_LEASE,
    ),
    Mutant(
        "behind-the-tail-of-before",
        "core/queueing.py",
        "        queued[queue] = QueuedKey(known.chunk, change.position)\n        return queue_behind(",
        "        queued[queue] = QueuedKey(known.chunk, known.tail)\n        return queue_behind(",
        "the second change that goes behind a parked one takes the place of the first",
        test=_QUEUE,
    ),
    Mutant(
        "gone-and-still-believed-in",
        "core/queued_keys.py",
        """        if item is None:
            self.queues.pop(queue, None)
        else:""",
        """        if item is None:
            self.queues[queue] = QueuedKey(self.queues[queue].chunk, "0")
        else:""",
        "an owner goes on putting changes into a queue that it has seen to be gone",
        test=_QUEUE,
    ),
    Mutant(
        "parents-without-owner-passed-over",
        "stream/lineage.py",
        "        if parent is not None and not parent.finished:\n            continue\n",
        "        if parent is not None and not parent.finished and parent.owner:\n            continue\n",
        "a child is read before its parent, if no worker reads that at the moment",
        "B5",
        test=_LINEAGE,
    ),
    Mutant(
        "taken-over-without-another-look",
        "fleet/joining.py",
        "            take_over = False\n            continue\n",
        "            continue\n",
        "an older roll-out wipes out the one that began in the moment in which it took over",
        "D3",
        test=_ROLL_OUTS,
    ),
    Mutant(
        "the-lister-is-not-raised",
        "fleet/capture.py",
        "        behind = [c for c in (lister, *listed) if c is not None and c.generation < number]\n",
        "        behind = [c for c in listed if c.generation < number]\n",
        "a lister of an older generation makes a child that its own roll-out reads",
        "D12",
        test=_ROLL_OUTS,
    ),
    Mutant(
        "replay-from-within-a-second",
        "operate/replay/replay.py",
        "        wish = replace(wish, since=int(wish.since))  # changes are stamped to the second\n",
        "",
        "a replay leaves out the changes of the second in which it begins",
        test="tests/simulation/test_replay.py::test_a_moment_within_a_second_is_the_whole_second_as_changes_are_stamped",
    ),
    Mutant(
        "replay-hides-what-cannot-be-read",
        "operate/replay/replayer.py",
        "                for unit in self._units:\n                    self.report.pass_over(unit.",
        "                for unit in ():\n                    self.report.pass_over(unit.",
        "a replay says nothing of changes that it could not read",
        test="tests/simulation/test_replay.py::test_a_change_that_cannot_be_read_is_passed_over_and_counted",
    ),
    Mutant(
        "replay-of-what-all-handlers-want",
        "operate/replay/replayer.py",
        "any(u.dispatcher.wants(record) for u in self._units)",
        "all(u.dispatcher.wants(record) for u in self._units)",
        "a replay of several handlers leaves out the changes to which only some of them listen",
        test="tests/simulation/test_replay.py::test_several_handlers_each_run_for_the_changes_to_which_they_listen",
    ),
)
