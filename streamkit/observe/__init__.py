"""What streamkit says about itself while it runs.

`logger` makes the loggers, `logs` sets up structured output, `events` names every event that is
ever logged, and `redaction` keeps item data out of them.
"""
