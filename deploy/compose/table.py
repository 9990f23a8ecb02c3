"""Creates the table of Big Time Deals in the engine, once.

In: the AWS variables of the environment. Out: the table, with its stream and expiry; nothing if it
is there. On failure: a traceback, and exit code 1.
"""

import asyncio

from handlers.deals.handlers import SHAPE, app
from streamkit.aws import connect
from streamkit.core.table_shape import entities_of


async def main() -> None:
    """Create the table if it does not exist."""
    async with connect() as aws:
        there = await aws.dynamodb.list_tables()
        if app.table not in there["TableNames"]:
            await SHAPE.create(aws.dynamodb, app.table, entities_of(app))


asyncio.run(main())
