"""Bugs of listeners: what is shared of a shard's reads, who follows whom, and pauses."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "joined-before-what-is-kept",
        "source/sharing.py",
        "        if self.low is None or not self.low <= position <= self.high:\n",
        "        if self.low is None or not position <= self.high:\n",
        "a consumer joins the others although what follows its position is not kept any more",
    ),
    Mutant(
        "joined-at-the-horizon-too-late",
        "source/sharing.py",
        "            self.low, self.from_horizon = page.records[-1].position, False\n",
        "            self.low = page.records[-1].position\n",
        "a new consumer joins at the oldest kept page instead of the oldest record",
    ),
    Mutant(
        "horizon-follows-on-anything",
        "source/sharing.py",
        "        if (begin or page.records[0].position) <= self.high < end",
        "        if begin <= self.high < end",
        "a page read at the horizon goes to a consumer that has not read what was trimmed before",
    ),
    Mutant(
        "nobody-woken",
        "source/sharing.py",
        "                    other.wake()\n",
        "                    pass\n",
        "a consumer that waits sees records only when its own pause is over",
    ),
    Mutant(
        "everybody-apart-at-once",
        "source/sharing.py",
        "            self.company.turns.take(reader)\n",
        "            pass\n",
        "all that fell behind read a shard at the same time",
    ),
    Mutant(
        "turn-for-ever",
        "source/turns.py",
        "        return holder is None or (not holder.calling and now - self._used >= _REST_SECONDS)\n",
        "        return holder is None\n",
        "a reader that is blocked keeps its turn, and others that fell behind never read",
    ),
    Mutant(
        "dead-tail-kept",
        "source/sharing.py",
        "            if not passing and iterator == self.tail:\n                self._forget()\n",
        "",
        "an iterator that expired is handed to whoever opens the shard anew",
    ),
    Mutant(
        "old-page-seen-now",
        "source/reader.py",
        "                self.seen = max(self.seen, page.read_at or self.clock.time())\n",
        "                self.seen = self.clock.time()\n",
        "a page that another consumer read long ago says that everything up to now was read",
    ),
    Mutant(
        "follower-claims-its-share",
        "fleet/sharing.py",
        "        if self._anchored is not None:\n            await self._follow(self._anchored)\n"
        "        elif not self.uncertain:\n",
        "        if not self.uncertain:\n",
        "a listener's shards are shared without regard to where the app's are read",
    ),
    Mutant(
        "follower-takes-anything",
        "fleet/sharing.py",
        "                or not self._may_take(cursor, now)\n",
        "",
        "a listener takes free shards that another process's anchor reads",
    ),
    Mutant(
        "paused-and-reading",
        "running/shardset.py",
        "        self.pool.pause(paused=paused)\n",
        "",
        "a paused consumer reads on",
    ),
    Mutant(
        "paused-and-retrying",
        "running/shardset.py",
        "        self.retries.pause(paused=paused)\n",
        "",
        "a paused consumer tries its parked changes",
    ),
    Mutant(
        "swept-readers-stay",
        "worker.py",
        "            crew.shards.abandon()\n",
        "",
        "pages are kept for readers that a worker had before it was swept",
    ),
)
