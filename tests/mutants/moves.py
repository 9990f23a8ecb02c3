"""Bugs of moves: a consumer that changes hosts loses changes, or does some twice."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "functions-not-shut-out",
        "aws_lambda/host.py",
        "    await claim(environment.store, LAMBDA)\n",
        "",
        "functions go on under marks that workers do not look at",
    ),
    Mutant(
        "workers-not-shut-out",
        "fleet/rollout.py",
        "host=WORKERS",
        'host=""',
        "workers go on at cursors that functions do not look at",
    ),
    Mutant(
        "moved-to-the-oldest-record",
        "moving/to_workers.py",
        "position=reader.position, seen",
        'position="TRIM_HORIZON", seen',
        "workers do again what the functions have done",
    ),
    Mutant(
        "moved-without-holds",
        "moving/to_workers.py",
        "holds=holds)",
        "holds=frozenset())",
        "changes overtake those that the functions have parked",
    ),
    Mutant(
        "marked-once",
        "moving/to_lambda.py",
        "        await self.marking.raise_all(cursors)\n        for",
        "        for",
        "what workers did while the mover waited for them is done again",
    ),
    Mutant(
        "positions-not-final",
        "moving/to_lambda.py",
        "            if not theirs:",
        "            if True:",
        "a worker that was thought dead commits behind the positions that were read",
    ),
    Mutant(
        "half-done-is-not-done",
        "moving/to_lambda.py",
        "            if cursor.done and not cursor.finished:",
        "            if False:",
        "handlers that were done with half of a change run again",
    ),
    Mutant(
        "lanes-not-at-marks",
        "moving/to_lambda.py",
        "        if lane_name(lane.handler, record.item_key) == lane.name:",
        "        if False:",
        "changes overtake those that the workers have parked",
    ),
    Mutant(
        "lanes-not-listed",
        "moving/to_lambda.py",
        "        await self._list_anew(lane)\n",
        "",
        "nobody goes on with the lanes of workers",
    ),
    Mutant(
        "mark-lowered",
        "moving/marking.py",
        "        action.guards.append((Guard(before), OURS))",
        "",
        "a parent that is read after its child lets the child's changes be done again",
    ),
    Mutant(
        "finished-shards-unmarked",
        "moving/marking.py",
        "upto = _ALL if cursor.finished else",
        'upto = "" if cursor.finished else',
        "shards that were read to their end are done again",
    ),
    Mutant(
        "deleted-leases-unread",
        "moving/leases.py",
        "                    self.passed.add(shard.id)",
        "                    pass",
        "shards whose leases a KCL has deleted, being done with them, are read again",
    ),
    Mutant(
        "checkpoint-comes-again",
        "moving/leases.py",
        "position=checkpoint.zfill(POSITION_DIGITS)",
        "position=str(int(checkpoint) - 1).zfill(POSITION_DIGITS)",
        "the change at a checkpoint is done twice",
    ),
    Mutant(
        "imported-half",
        "moving/kcl.py",
        "host=FROM_KCL\n",
        "host=WORKERS\n",
        "a worker begins before all checkpoints are there",
    ),
)
