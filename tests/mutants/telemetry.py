"""Deliberate bugs in metrics, traces and health."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "trace-of-an-earlier-write",
        "processing/tracing.py",
        'return valid_parent(text) if text and (old is None or text != self._text(old)) else ""',
        'return valid_parent(text) if text else ""',
        "an update by somebody who traces nothing continues the trace of the write before",
    ),
    Mutant(
        "trace-ends-at-the-effect",
        "processing/outcome.py",
        "        trace = outcome.trace\n",
        '        trace = ""\n',
        "a trace does not go on through an item that a handler writes",
    ),
    Mutant(
        "trace-of-any-text",
        "observe/traces.py",
        'if version == "ff" or (version == "00" and more) or not',
        'if version == "ff" or not',
        "what is not as the standard says is passed on",
    ),
    Mutant(
        "span-tells-what-errors-say",
        "observe/otel.py",
        "record_exception=False, set_status_on_exception=False",
        "record_exception=True, set_status_on_exception=True",
        "a span holds the text of an exception, which may hold data",
    ),
    Mutant(
        "conflicts-are-throttling",
        "processing/commit.py",
        "elif isinstance(verdict, Again) and not verdict.throttled:",
        "elif isinstance(verdict, Again):",
        "throttling is counted as conflicts of transactions",
    ),
    Mutant(
        "units-of-nobody",
        "cost/metering.py",
        'return {**params, "ReturnConsumedCapacity": "TOTAL"}',
        "return None",
        "what is used is not counted",
    ),
    Mutant(
        "lag-of-what-was-read",
        "running/lag.py",
        "        if oldest is not None:\n            return max(0.0, now - oldest)\n",
        "",
        "a shard that waits for a handler seems to be up to date",
    ),
    Mutant(
        "stuck-for-ever",
        "parked/retrying.py",
        "        self._stuck.discard(report.lane)\n",
        "",
        "an item that a person has helped counts as stuck until its lane is empty",
    ),
    Mutant(
        "far-behind-is-ready",
        "health/checks.py",
        "and standing.lag > lag_max:",
        "and standing.lag < 0 > lag_max:",
        "a worker that is hours behind is ready",
    ),
    Mutant(
        "page-unescaped",
        "health/markup.py",
        '    return escape(child if isinstance(child, str) else f"{child:,}")\n',
        '    return child if isinstance(child, str) else f"{child:,}"\n',
        "whoever names things may write into the page",
    ),
    Mutant(
        "line-tells-all-again",
        "observe/emf.py",
        "        found, self._found = self._found, {}\n",
        "        found = self._found\n",
        "each invocation is billed for what those before it have counted",
    ),
)
