"""Filter criteria, held against every record that a system's traffic and its control items make."""

import pytest

from handlers.documents import handlers as documents
from handlers.documents.traffic import Traffic as Documents
from handlers.shop import handlers as shop
from handlers.shop.traffic import Traffic as Shop
from streamkit.aws_lambda.event import read_records
from streamkit.aws_lambda.filters import criteria
from streamkit.model.schema import TableSchema
from streamkit.stream.decode import CONTROL
from streamkit.testing import trial
from streamkit.testing.crew import TrialCrew
from tests.filter_rules import lets_through
from tests.simulation.lambdas import Stream

SYSTEMS = {
    "shop": (shop.app, Shop(customers=5), shop.SHAPE),
    "documents": (documents.app, Documents(), documents.SHAPE),
}


def records_of(app, traffic, shape):
    """Run a system for a while; return the table's schema, and the records of its stream."""
    seen = []

    class Watched(TrialCrew):
        def __init__(self, app, world, met, faults):
            super().__init__(app, world, met, faults)
            self.watched = world

        def close(self):
            _, described = self.watched.engine.call(
                "dynamodb", "DescribeTable", {"TableName": app.table}
            )
            seen.append((described["Table"], Stream(self.watched, app.table).records()))
            super().close()

    trial(app, traffic, shape=shape, acts=30, host=Watched)
    ((described, records),) = seen
    schema = TableSchema.from_description(
        described, ttl=shape.ttl, type_attribute=app.type_attribute
    )
    return schema, records


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_record_that_a_handler_listens_to_comes_through_and_no_control_item(name):
    app, traffic, shape = SYSTEMS[name]
    schema, records = records_of(app, traffic, shape)
    route, entities = app.router(schema).route, {handler.entity for handler in app.handlers}
    decoded = read_records(records)
    for filters in (10, 5, 1):
        found = criteria(app, schema, filters=filters).to_dict()
        through = {r["eventID"] for r in records if lets_through(found, r)}
        wanted = {r.event_id for r in decoded if route(r) in entities}
        own = {r.event_id for r in decoded if route(r) is CONTROL}
        assert wanted <= through
        assert own.isdisjoint(through)
        assert len(wanted) > 30
        assert len(own) > 30
