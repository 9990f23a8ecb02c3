"""A table's description gives the names and types that keys and indexes need."""

from streamkit.model.schema import TableSchema

DESCRIPTION = {
    "TableName": "shop",
    "AttributeDefinitions": [
        {"AttributeName": "PK", "AttributeType": "S"},
        {"AttributeName": "SK", "AttributeType": "N"},
        {"AttributeName": "GSI1PK", "AttributeType": "S"},
    ],
    "KeySchema": [
        {"AttributeName": "SK", "KeyType": "RANGE"},
        {"AttributeName": "PK", "KeyType": "HASH"},
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "GSI1",
            "KeySchema": [{"AttributeName": "GSI1PK", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["a"]},
        }
    ],
    "LocalSecondaryIndexes": [
        {
            "IndexName": "LSI1",
            "KeySchema": [
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "SK", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    "LatestStreamArn": "arn:stream",
}


def test_keys_and_indexes_come_from_the_description() -> None:
    schema = TableSchema.from_description(DESCRIPTION, ttl="expires", type_attribute="type")
    assert (schema.pk, schema.pk_type, schema.sk, schema.sk_type) == ("PK", "S", "SK", "N")
    assert (schema.stream_arn, schema.view_type, schema.ttl) == (
        "arn:stream",
        "NEW_IMAGE",
        "expires",
    )
    first, local = schema.indexes["GSI1"], schema.indexes["LSI1"]
    assert (first.pk, first.sk, first.projection, first.included) == (
        (("GSI1PK", "S"),),
        (),
        "INCLUDE",
        frozenset({"a"}),
    )
    assert first.is_global
    assert not local.is_global
    assert [kind for _, kind in local.sk] == ["N"]
    assert schema.key_attributes == {"PK", "SK"}
    assert schema.reserved_attributes == {"PK", "SK", "GSI1PK", "type"}


def test_a_disabled_stream_is_no_stream() -> None:
    disabled = DESCRIPTION | {"StreamSpecification": {"StreamEnabled": False}}
    schema = TableSchema.from_description(disabled)
    assert schema.stream_arn is None
    assert schema.view_type is None
