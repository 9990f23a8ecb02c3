"""Move a consumer from one host to another; no change is lost and none is applied twice.

    await import_leases(app, aws, "kcl-leases")    from a KCL consumer, before any worker has run
    await move_to_workers(app, aws)                from streamkit's Lambda functions to its workers
    await move_to_lambda(app, aws, wait=600)       and back

Writes to the table continue during a move; changes wait in the stream, for seconds or minutes. The
same call again finishes an interrupted move, and until then neither host begins. A mover that only
seemed to be dead is shut out by the mover that finishes: see `fence`.

**To workers.** Functions store what is done as a high-water mark for each item, workers as a
position in each shard. (1) The mover reads every shard from its oldest record and processes what is
not done by any mark, as the mapping does: if both process a change, the mark shows the second one
that it is done. At the tip of a shard everything before is done. (2) The consumer's item names a
new host, and every invocation that begins later fails. (3) An invocation that began before may
still commit, but only under marks: the mover continues for as long as a function may run. (4) The
mover reads to the tip once more. Every record that such a function received had been read before
(2), so that it lies before this tip and is done. (5) The positions reached become cursors. They are
complete before the host's name lets a worker take one.

**To Lambda.** A new mapping begins at the oldest record, and an event does not contain its shard.
(1) While the workers run, the mover reads what they have done, and raises the mark of each item to
its last change that lies before its shard's position: this stays true in any case. (2) The
workers are stopped. The mover begins a new generation and takes every cursor in it; this shuts out
workers that only seemed to be dead: the positions are final. (3) The marks are raised to these
positions. If only some handlers are done with a change, its mark names them, as its cursor did; a
mark also names the parked queues of its item. (4) The cursors are deleted, the host's name changes,
and the mapping may be enabled, at TRIM_HORIZON: it delivers a day again, and the mark of every
change that was done says so.

**From a KCL.** A checkpoint is a position. What the KCL had done after its last checkpoint is
delivered once more, as it would have been in the KCL. `leases` says what becomes of each lease.

**Into its app.** A handler with a start of its own is a consumer of its own; `into_app` says how
its app takes it over.

From a function of your own there is no exact way without a stop of writes: nothing says what it has
done of an item. Start the app some minutes before the mapping is disabled, `App(start=...)`, with
handlers that may process those minutes again.
"""

from streamkit.operate.moves.into_app import Joined, join_handler
from streamkit.operate.moves.kcl import import_leases
from streamkit.operate.moves.moved import Imported, Moved, MoveRefused
from streamkit.operate.moves.to_lambda import move_to_lambda
from streamkit.operate.moves.to_workers import move_to_workers

__all__ = [
    "Imported",
    "Joined",
    "MoveRefused",
    "Moved",
    "import_leases",
    "join_handler",
    "move_to_lambda",
    "move_to_workers",
]
