"""Compute the least that a worker, the functions on Lambda, a migration and an operator need.

In: an app, which host, and the account and Region. Out: a policy, each statement with its reason.
No call to AWS is made. AWS authorises a transaction as the actions that it is made of, and compares
the keys of all of them with the patterns. Streams and scans take no condition on keys: a role that
may read the stream reads every item.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from streamkit.app import App, consumers_of
from streamkit.entity import spec_of
from streamkit.kinds.aggregate.aggregate import stored_as
from streamkit.operate.permissions.access import (
    ALL_CONTROL,
    READS,
    WRITES,
    Access,
    Patterns,
    access_of,
    control_patterns,
    patterns_of,
    widen,
)
from streamkit.operate.permissions.document import (
    MANAGED_MAX,
    IamPolicy,
    Statement,
    dynamodb_actions,
    literal,
    only_keys,
)
from streamkit.operate.permissions.place import AccountPlace
from streamkit.operate.permissions.sinks import (
    archive_statements,
    keys_statements,
    sink_statement,
)
from streamkit.operate.replay.report import replay_name
from streamkit.progress.actions import CONTROL_PREFIX, ENTRY_PREFIX

Host = Literal["worker", "lambda", "migrate", "operator"]

_EVERYTHING: Patterns = None
_LOOKS = ("BatchGetItem", "GetItem")
_KMS = (
    "where the table, or a queue, topic, stream or bucket that is sent to, has a customer managed"
    " key, the role needs that key, too; that is not computed here"
)


def policy_for(
    app: App,
    host: Host,
    place: AccountPlace | None = None,
    *,
    function: str = "*",
    leading_keys: bool = True,
    leases: str | None = None,
    keys_from: str = "",
) -> IamPolicy:
    """Compute the policy of a host that runs an app with its listeners.

    Args:
        app: the app that the host runs.
        host: `worker`, `lambda` (both functions), `migrate`, or `operator`: all that the other
            commands do, redrives included.
        place: the account and Region.
        function: the name of the Lambda function, for its log group.
        leading_keys: restrict partition keys to patterns; if false, any item is allowed, which is
            needed where partition keys are binary.
        leases: the lease table of a KCL, for an operator that will import it.
        keys_from: what says which items are chosen, for a migration that will read it.
    """
    building = _Building(app, host, place or AccountPlace(), leading_keys=leading_keys)
    return building.policy(function, leases, keys_from)


class _Building:
    """A policy while it is built."""

    def __init__(self, app: App, host: Host, place: AccountPlace, *, leading_keys: bool) -> None:
        self.app, self.host, self.place, self.leading_keys = app, host, place, leading_keys
        self.consumers: Sequence[App] = consumers_of([app])
        self.access: Access = access_of(self.consumers)
        self.own = place.of_table(app.table, app.table)
        self.control = place.of_table(app.control_table or app.table, app.table)
        names = [name for one in self.consumers for name in one.tables]
        names += self.access.migrated
        self.others = [place.of_table(name, app.table) for name in dict.fromkeys(names)]
        self.reads = "Query" in self.access.own
        self.found: list[Statement] = []

    def policy(self, function: str, leases: str | None, keys_from: str) -> IamPolicy:
        """Return the policy, with all statements."""
        self._describe()
        self._stream()
        self._control()
        self._items()
        self._migrations()
        if self.host == "lambda":
            self._logs(function)
        if leases is not None:
            why = "`consumers import-kcl` reads the KCL's leases"
            self._allow("ScanLeases", ["Scan"], [self.place.of_table(leases, self.app.table)], why)
        if self.host in ("migrate", "operator"):
            self.found += keys_statements(keys_from, self.place, self.own)
        notes = [*self.access.notes, *self._sinks(), _KMS]
        policy = IamPolicy(tuple(self.found))
        if policy.size > MANAGED_MAX:
            notes.append(
                f"{policy.size} characters: a managed policy takes {MANAGED_MAX}; let it be an"
                " inline policy (10,240), or leave the leading keys out"
            )
        return IamPolicy(policy.statements, tuple(dict.fromkeys(notes)))

    def _allow(
        self,
        sid: str,
        actions: Iterable[str],
        resources: Iterable[str],
        why: str,
        patterns: Patterns = _EVERYTHING,
    ) -> None:
        condition = only_keys(patterns) if self.leading_keys and patterns is not None else {}
        names = dynamodb_actions(actions)
        self.found.append(Statement(sid, names, tuple(dict.fromkeys(resources)), why, condition))

    def _describe(self) -> None:
        tables = [self.own, self.control, *self.others]
        actions = ["DescribeTable", "DescribeTimeToLive"]
        if self.host in ("migrate", "operator"):
            actions.append("DescribeContinuousBackups")
        self._allow("DescribeTables", actions, tables, "keys, indexes, TTL and stream, at start")

    def _stream(self) -> None:
        stream = [f"{self.own}/stream/*"]
        if self.host in ("migrate", "operator"):  # a rollback follows the changes of those items
            moves = [one.to for one in self.app.migrations.values() if one.follows_target]
            stream += [f"{self.place.of_table(to, self.app.table)}/stream/*" for to in moves if to]
        actions = ("DescribeStream", "GetRecords", "GetShardIterator")
        self._allow("ReadStream", actions, stream, "the changes; every item of the table is in it")
        seen = ["ListStreams"] if self.host == "lambda" else ["DescribeEndpoints", "ListStreams"]
        why = (
            "the mapping finds the stream"
            if self.host == "lambda"
            else "whether the service answers"
        )
        self._allow("FindService", seen, ["*"], why)

    def _control(self) -> None:
        """Allow what streamkit keeps; in the app's own table together with other items.

        A transaction writes both, and one statement has to allow an action on all keys of a call.
        """
        patterns = control_patterns(self.consumers, completions=self.access.completions)
        if self.host == "operator":  # `consumers` also lists and deletes those of other apps
            patterns = ALL_CONTROL
        self._progress()
        actions = [*READS, *WRITES]
        if self.control == self.own:
            widen(self.access.own, actions, patterns)
        else:
            why = "cursors, leases, heartbeats, parked changes"
            self._allow("ControlItems", actions, [self.control], why, patterns)
            why = "whether it has run without control_table="
            mine = frozenset({f"{CONTROL_PREFIX}{literal(self.app.name)}*#consumer"})
            self._allow("ControlInTable", ["GetItem"], [self.own], why, mine)
            if any(h.converges and h.broadcast for one in self.consumers for h in one.handlers):
                widen(self.access.own, actions, frozenset({f"{literal(ENTRY_PREFIX)}*"}))
        if self.host == "migrate":
            reads = ("BatchGetItem", "GetItem", "Query")
            why = "it slows down while the table's other consumers lag"
            self._allow("OtherConsumers", reads, [self.control], why, ALL_CONTROL)
        elif self.host != "operator" and any(one.aggregates for one in self.consumers):
            why = "whether another app counts an aggregate"
            keys = frozenset({f"{CONTROL_PREFIX}*#consumer"})
            self._allow("OtherConsumers", ["GetItem"], [self.control], why, keys)
        if self.host == "operator" and self.others:
            checks = ("ConditionCheckItem", *WRITES)
            why = "`check` asks with transactions that never apply"
            self._allow("CheckOtherTables", checks, self.others, why, patterns)
        scanned = self.host == "operator" and self.control == self.own  # by `aggregate verify`
        if self._sweeps and not scanned and (self.control != self.own or self._has_no_sort_key):
            why = "what a rebuild leaves is found by a scan where there is no sort key"
            self._allow("ScanControl", ["Scan"], [self.control], why)

    def _progress(self) -> None:
        """Allow a worker's status page to show how far a replay to the end is."""
        if self.host != "worker" or self.app.archive is None:
            return
        names = [replay_name(one.name) for one in self.consumers if not one.copies]
        patterns = frozenset(f"{CONTROL_PREFIX}{literal(name)}#*" for name in names)
        if self.control == self.own:
            widen(self.access.own, _LOOKS, patterns)
        else:
            why = "how far a replay is, for the status page"
            self._allow("ShowReplays", _LOOKS, [self.control], why, patterns)

    @property
    def _sweeps(self) -> bool:
        """Return whether this host deletes the items that rebuilds of aggregates leave.

        The leading worker does, the scheduled function, and an operator that deletes a consumer.
        """
        return self.host != "migrate" and any(one.aggregates for one in self.consumers)

    @property
    def _has_no_sort_key(self) -> bool:
        entities = [entity for one in self.consumers for entity in one.entities]
        return all(spec_of(entity).sk is None for entity in entities)

    def _rebuilds(self) -> None:
        """Allow `aggregate rebuild` to delete groups, unless the application owns the items."""
        for aggregate in (one for app in self.consumers for one in app.aggregates):
            cleared = [] if aggregate.__options__.onto else ["DeleteItem"]
            patterns = patterns_of([stored_as(aggregate)])
            widen(self.access.own, [*cleared, "UpdateItem", "ConditionCheckItem"], patterns)

    def _replays(self) -> None:
        """Allow `replay` to check that an item is still as an old change left it."""
        sources = [handler.entity for one in self.consumers for handler in one.handlers]
        if self.app.archive is not None and sources:
            widen(self.access.own, ["ConditionCheckItem"], patterns_of(sources))

    def _items(self) -> None:
        if self.host in ("operator", "migrate"):
            self._rebuilds()
        if self.host == "operator":
            self._replays()
        kept = " (cursors, leases, heartbeats, parked changes)" if self.control == self.own else ""
        why = f"what handlers write and read, and what streamkit keeps{kept}"
        reads = ("BatchGetItem", "GetItem", "Query") if self.host == "operator" else ()
        needed = {name: keys for name, keys in self.access.own.items() if name not in reads}
        self._by_patterns("Items", needed, [self.own], why)
        if self.others:
            self._by_patterns("OtherItems", self.access.others, self.others, why)
        migrates = self.host == "migrate"
        if self.access.indexes and (migrates or self.reads):
            indexes = [f"{self.own}/index/{name}" for name in sorted(self.access.indexes)]
            actions = ["Query", "Scan"] if migrates or self.access.scans else ["Query"]
            self._allow("Indexes", actions, indexes, "queries of handlers and audiences")
        if reads:
            why = "`explain`, `aggregate verify`, and what handlers read that are run again"
            self._allow("ReadItems", reads, [self.own], why)
        if migrates or self.host == "operator" or self.access.scans:
            whys = {"operator": "`aggregate verify` reads the table", "migrate": "its segments"}
            why = whys.get(self.host, "a handler scans")
            self._allow("ScanTable", ["Scan"], [self.own], why)

    def _by_patterns(
        self, sid: str, needed: Mapping[str, Patterns], tables: Sequence[str], why: str
    ) -> None:
        """Add one statement for all actions that need the same keys."""
        together: dict[Patterns, list[str]] = defaultdict(list)
        for action in sorted(needed):
            together[needed[action]].append(action)
        for number, (patterns, actions) in enumerate(together.items(), 1):
            ending = str(number) if len(together) > 1 else ""
            self._allow(sid + ending, actions, tables, why, patterns)

    def _migrations(self) -> None:
        """Allow copies to other tables; a worker copies items that change during a migration."""
        for number, (name, patterns) in enumerate(self.access.migrated.items(), 1):
            arn = self.place.of_table(name, self.app.table)
            why = "a migration copies there"
            self._allow(f"Migrations{number}", (*READS, *WRITES), [arn], why, patterns)
            if self.host in ("migrate", "operator"):
                scans = "a rollback and `verify` read what was copied"
                self._allow(f"ScanMigrations{number}", ["Scan"], [arn], scans)

    def _sinks(self) -> list[str]:
        """Add what the archive and sinks need; return notes on sinks whose needs are not known."""
        notes: list[str] = []
        if self.host == "migrate":  # its handlers are its own, and they send nothing
            return notes
        if self.app.archive is not None and self.host in ("worker", "operator"):
            self.found += archive_statements(self.app.archive, self.place)
        sinks = [sink for one in self.consumers for sink in one.sinks]
        for number, sink in enumerate(sinks, 1):
            statement = sink_statement(sink, self.place, f"Sink{number}")
            if statement is None:
                notes.append(f"the sink {sink.name!r} is none of AWS's: nothing is allowed for it")
            else:
                self.found.append(statement)
        return notes

    def _logs(self, function: str) -> None:
        group = self.place.arn("logs", f"log-group:/aws/lambda/{function}")
        actions = ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents")
        self.found.append(Statement("Logs", actions, (group, f"{group}:*"), "the function's log"))
