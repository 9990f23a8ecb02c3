"""Observe: the logs, metrics and traces of a running streamkit.

`logger` makes the loggers, `logs` sets up structured output, `events` names every log event, and
`redaction` keeps item data out of the log. `metrics` names every metric and defines their hook;
`registry` keeps metrics in memory, `exposition` and `emf` render them, `meters` has the instruments
of one consumer. `traces` defines the hook for spans, and `otel` connects both hooks to
OpenTelemetry; `shards` is the hook for shards that are taken and released.
"""
