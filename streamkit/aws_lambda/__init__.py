"""The Lambda host: the same handlers on an event source mapping.

    handler = streamkit.aws_lambda.handler(app)

Lambda reads the shards and keeps the position; what is done of each item is kept in the table, in
the same transactions as the effects. See `batch` for how a batch becomes commits, `marks` for what
is kept.
"""

from streamkit.aws_lambda.host import handler, maintenance_handler

__all__ = ["handler", "maintenance_handler"]
