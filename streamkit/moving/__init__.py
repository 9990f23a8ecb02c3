"""Moving: a consumer changes hosts, with no change lost and none applied twice.

    await import_leases(app, aws, "kcl-leases")    from a KCL consumer, before any worker has run
    await move_to_workers(app, aws)                from streamkit's Lambda functions to its workers
    await move_to_lambda(app, aws, wait=600)       and back

Writes to the table go on all the while; changes wait in the stream, for seconds or minutes. A move
that is broken off is finished by the same call again, and until then neither host begins. A mover
that was thought dead, and is not, is shut out by the one that finishes: see `fence`.

**To workers.** Functions know what is done by a mark at each item, workers by a position in each
shard. (1) The mover reads every shard from its oldest record and processes what no mark says is
done, as the mapping does: a mark lets whoever comes second find nothing to do. At the tip of
a shard everything before is done. (2) The consumer's item names a new host, and every invocation
that begins later fails. (3) One that began before may still commit, and under marks only: the mover
goes on for as long as a function may run. (4) It reads to the tip once more. What such a function
was given had been read before (2), so that it lies before this tip, and is done. (5) The positions
reached become cursors. They are complete before the host's name lets a worker take one.

**To Lambda.** A mapping that is created begins at the oldest record, and an event does not say its
shard. (1) While the workers run, the mover reads what they have done, and raises the mark of each
item to its last change that lies before its shard's position: a true statement for ever, whatever
follows. (2) The workers are stopped. A new generation, and a take of every cursor in it, keep those
out that were thought dead: the positions are final. (3) The marks are raised to these. A change of
which some handlers are done names them in its mark, as its cursor did; so does every item whose
lane is held. (4) The cursors are deleted, the host's name changes, and the mapping may be enabled,
at TRIM_HORIZON: it delivers a day again, and every change that was done finds its mark.

**From a KCL.** A checkpoint is a position. What the KCL had done after its last checkpoint comes
again: once, as it would have in the KCL. See `leases` for what becomes of each lease.

From a function of your own there is no exact way without a stop of writes: nothing says what it has
done of an item. Let the app start some minutes before the mapping is disabled, `App(start=...)`,
with handlers that may do those minutes again.
"""

from streamkit.moving.kcl import import_leases
from streamkit.moving.moved import Imported, Moved, MoveRefused
from streamkit.moving.to_lambda import move_to_lambda
from streamkit.moving.to_workers import move_to_workers

__all__ = [
    "Imported",
    "MoveRefused",
    "Moved",
    "import_leases",
    "move_to_lambda",
    "move_to_workers",
]
