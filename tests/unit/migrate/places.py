"""A table of items in a simulated world, with the migration `0001` of its app."""

import random

from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify.verifying import verify_migration
from streamkit.testing.migrators import SETTINGS


class Place:
    """What tests of a migration's steps work on; `aws` are open clients of the world."""

    def __init__(self, world, aws, app, schema):
        self.world, self.aws, self.app, self.schema = world, aws, app, schema
        self.migration = app.migrations["0001"]

    async def put(self, *items):
        for item in items:
            wire = item.attributes(self.schema)
            await self.aws.dynamodb.put_item(TableName="Shop", Item=wire)

    def runner(self, **options):
        given = {"settings": SETTINGS, "clock": self.world.clock, "rng": random.Random(1)} | options
        return Runner(self.app, self.aws, self.migration, **given)

    async def verify(self, **options):
        given = {"clock": self.world.clock, "rng": random.Random(2)}
        return await verify_migration(self.app, self.aws, self.migration, **given | options)
