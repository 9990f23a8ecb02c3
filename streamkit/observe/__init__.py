"""What streamkit says about itself while it runs.

`logger` makes the loggers, `logs` sets up structured output, `events` names every event that is
ever logged, and `redaction` keeps item data out of them. `metrics` names every metric and is the
hook for them; `registry` keeps them in memory, `exposition` and `emf` write them down, `meters` are
the instruments of one consumer. `traces` is the hook for spans, and `otel` fits both hooks to
OpenTelemetry; `shards` is the hook for shards that come and go.
"""
