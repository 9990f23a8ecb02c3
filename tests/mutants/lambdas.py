"""Deliberate bugs in the Lambda host; `row` 3 is that of the model of its marks."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    # -- marks -------------------------------------------------------------------------------------
    Mutant(
        "mark-unchecked",
        "aws_lambda/marks.py",
        "    return any_of(absent, before)\n",
        '    return any_of(absent, Attr("kind").exists())\n',
        "two invocations of the same records both apply them",
        "3",
    ),
    Mutant(
        "mark-without-its-holds",
        "aws_lambda/marks.py",
        '(("done", now.done), ("lanes", now.lanes)):\n        before',
        '(("done", now.done),):\n        before',
        "a change overtakes the one before it, which another invocation has just parked",
        "3",
    ),
    Mutant(
        "holds-of-others-unseen",
        "aws_lambda/batch.py",
        "        self.works = left\n        self._hold()\n",
        "        self.works = left\n",
        "a change overtakes the one before it, which another invocation has parked",
        "3",
    ),
    Mutant(
        "mark-may-be-there-already",
        "aws_lambda/marks.py",
        'Attr("position").lt(first)',
        'Attr("position").lte(first)',
        "a change that another invocation has just done is done again",
        "3",
    ),
    Mutant(
        "parking-leaves-the-mark",
        "aws_lambda/batch.py",
        "            if number < plan.changes:\n",
        "            if number < plan.changes and not plan.held:\n",
        "a parked change that comes again is parked again, and what is behind it is applied",
        "3",
    ),
    Mutant(
        "mark-without-its-lanes",
        "aws_lambda/marks.py",
        "    return replace(mark, position=position, done=frozenset(), lanes=lanes)\n",
        "    return replace(mark, position=position, done=frozenset())\n",
        "later changes of an item overtake the one that is parked",
        "3",
    ),
    Mutant(
        "marks-of-a-former-stream",
        "aws_lambda/environment.py",
        "    raise StreamReplaced(\n",
        "    StreamReplaced(\n",
        "one change is done under the marks of two streams",
    ),
    # -- what comes again --------------------------------------------------------------------------
    Mutant(
        "later-identifier",
        "aws_lambda/batch.py",
        "            return self.works[0].record\n",
        "            return self.works[-1].record\n",
        "Lambda goes on behind a change that is not done",
    ),
    Mutant(
        "cut-off-is-done",
        "aws_lambda/invocation.py",
        "            self.deadline,\n            deque(records),\n",
        '            float("inf"),\n            deque(records),\n',
        "a handler that hangs lets its function be killed, with all that was done",
    ),
    Mutant(
        "window-without-its-state",
        "aws_lambda/host.py",
        '        response["state"] = event.state\n',
        '        response["state"] = {}\n',
        "the state of a tumbling window is lost",
    ),
    # -- changes that end their function -----------------------------------------------------------
    Mutant(
        "every-batch-counted",
        "aws_lambda/trials.py",
        "self.clock.time() - record.created_at >= YOUNG_SECONDS",
        "self.clock.time() - record.created_at >= 0",
        "each batch costs a write before it begins",
    ),
    Mutant(
        "deadly-never-parked",
        "aws_lambda/trials.py",
        '        return _number(item, "tries") > SUSPICIOUS or _number(item, "alone") > 0\n',
        '        return _number(item, "tries") < 0\n',
        "a change that kills its function stops its shard until it expires",
    ),
    Mutant(
        "hanging-never-counts",
        "aws_lambda/invocation.py",
        "        if self.counted is not None and not self.batch.stalled:\n",
        "        if self.counted is not None:\n",
        "a change whose handler hangs stops its shard until it expires",
    ),
    Mutant(
        "blocking-counts",
        "aws_lambda/batch.py",
        "return self.cut and bool(waiting) and not any(blocks(o.handler) for o in waiting)",
        "return self.cut and bool(waiting)",
        "a change that is to wait for its downstream is parked unrun",
    ),
    # -- lanes -------------------------------------------------------------------------------------
    Mutant(
        "lanes-in-unlisted-chunks",
        "processing/planning.py",
        "        if self.chunks:\n",
        "        if self.chunks and not self.shard:\n",
        "of the lanes that one batch begins nobody finds more than a hundred",
    ),
    Mutant(
        "maintenance-without-a-pause",
        "aws_lambda/maintenance.py",
        "                await anyio.sleep(max(pause, 0.0 if self._lanes else _PAUSE_SECONDS))\n",
        "                await anyio.sleep(0.01)\n",
        "a slow fan-out asks the table all the time",
    ),
    Mutant(
        "broken-lane-ends-all",
        "aws_lambda/maintenance.py",
        "        except InvariantError:\n            log.exception",
        "        except ZeroDivisionError:\n            log.exception",
        "one broken lane stops all others",
    ),
    # -- what a mapping gave up --------------------------------------------------------------------
    Mutant(
        "late-is-dropped",
        "aws_lambda/late.py",
        "    for record in (*old, *passed):\n",
        "    for record in old:\n",
        "a change that was given up is lost without a trace",
        "3",
    ),
    Mutant(
        "late-is-applied",
        "parked/redriver.py",
        "        if head.error == LATE:\n",
        "        if head.error == LATE and not held.stuck:\n",
        "a person who redrives all applies what may have been applied",
    ),
    Mutant(
        "old-marks-believed",
        "aws_lambda/late.py",
        "_SURE_SECONDS = KEPT_SECONDS - 3600\n",
        "_SURE_SECONDS = KEPT_SECONDS * 10\n",
        "a payload that is older than marks live is applied again",
        "3",
    ),
    # -- filters -----------------------------------------------------------------------------------
    Mutant(
        "filter-without-old-images",
        "aws_lambda/filters.py",
        '        for image in ("NewImage", "OldImage")\n    ]\n',
        '        for image in ("NewImage",)\n    ]\n',
        "removals of items that their type tells never come",
    ),
    Mutant(
        "filter-of-the-longest",
        "aws_lambda/filters.py",
        "        elif not sk:\n            self.found[pk] = set()\n",
        "        elif not sk:\n            pass\n",
        "an entity whose sort key may be anything is left out beside one with a prefix",
    ),
)
