"""CreateTable, DescribeTable, DeleteTable, ListTables, and tags."""

import pytest

ON = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}


def describe(db, name="table"):
    return db("DescribeTable", TableName=name)["Table"]


def definition(**changes):
    return {
        "TableName": "table",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    } | changes


def attributes(*names):
    return [{"AttributeName": name, "AttributeType": "S"} for name in names]


def test_a_new_table_is_active_and_described(db, build):
    created = db(
        "CreateTable",
        **definition(
            StreamSpecification=ON,
            AttributeDefinitions=attributes("pk", "v"),
            GlobalSecondaryIndexes=[build.gsi("gsi", "v")],
        ),
    )["TableDescription"]
    assert created == describe(db)
    assert created["TableStatus"] == "ACTIVE"
    assert created["TableArn"] == "arn:aws:dynamodb:us-east-1:000000000000:table/table"
    assert created["LatestStreamArn"].startswith(created["TableArn"] + "/stream/20")
    assert created["StreamSpecification"] == ON
    assert created["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert created["CreationDateTime"] == db.now
    (index,) = created["GlobalSecondaryIndexes"]
    assert index["IndexStatus"] == "ACTIVE"
    assert index["IndexArn"] == created["TableArn"] + "/index/gsi"
    assert len(created["TableId"]) == 36


def test_counts_and_sizes_are_always_right(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("gsi", "v", projection="KEYS_ONLY")])
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="b", v="x", w="yz"))
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="c"))
    table = describe(db)
    assert (table["ItemCount"], table["TableSizeBytes"]) == (2, 6 + 2 + 3 + 6)
    (index,) = table["GlobalSecondaryIndexes"]
    assert (index["ItemCount"], index["IndexSizeBytes"]) == (1, 6 + 2)
    for sk in "bc":
        db("DeleteItem", TableName="table", Key=build.item(pk="a", sk=sk))
    assert (describe(db)["ItemCount"], describe(db)["TableSizeBytes"]) == (0, 0)


def test_options_are_kept_and_told(db):
    db(
        "CreateTable",
        **definition(
            BillingMode="PROVISIONED",
            ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 6},
            DeletionProtectionEnabled=True,
            TableClass="STANDARD_INFREQUENT_ACCESS",
            SSESpecification={"Enabled": True},
            Tags=[{"Key": "a", "Value": "b"}],
        ),
    )
    table = describe(db)
    assert table["ProvisionedThroughput"] == {
        "NumberOfDecreasesToday": 0,
        "ReadCapacityUnits": 5,
        "WriteCapacityUnits": 6,
    }
    assert table["DeletionProtectionEnabled"] is True
    assert table["TableClassSummary"] == {"TableClass": "STANDARD_INFREQUENT_ACCESS"}
    assert table["SSEDescription"] == {"Status": "ENABLED", "SSEType": "KMS"}
    assert "BillingModeSummary" not in table
    tags = db("ListTagsOfResource", ResourceArn=table["TableArn"])
    assert tags == {"Tags": [{"Key": "a", "Value": "b"}]}
    assert db.invalid("DeleteTable", TableName="table") == (
        "Resource cannot be deleted as it is currently protected against deletion. Disable "
        "deletion protection first."
    )
    db("UpdateTable", TableName="table", DeletionProtectionEnabled=False)
    db("DeleteTable", TableName="table")


LSI_TABLE = {
    "KeySchema": [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": attributes("pk", "sk", "v"),
}
INVALID = "One or more parameter values were invalid: "


def index(name="idx", keys=("v",), **changes):
    kinds = ("HASH", "RANGE")
    return {
        "IndexName": name,
        "KeySchema": [
            {"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, kinds, strict=False)
        ],
        "Projection": {"ProjectionType": "ALL"},
    } | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"TableName": None},
            "The parameter 'TableName' is required but was not present in the request",
        ),
        (
            {"TableName": "ab"},
            (
                "1 validation error detected: Value 'ab' at 'tableName' failed to satisfy constraint: "
                "Member must have length greater than or equal to 3"
            ),
        ),
        (
            {"TableName": "x!xx"},
            (
                "1 validation error detected: Value 'x!xx' at 'tableName' failed to satisfy "
                "constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"
            ),
        ),
        (
            {"KeySchema": [{"AttributeName": "pk", "KeyType": "INVALID"}]},
            (
                "1 validation error detected: Value 'INVALID' at 'keySchema.1.member.keyType' failed "
                "to satisfy constraint: Member must satisfy enum value set: [HASH, RANGE]"
            ),
        ),
        (
            {"KeySchema": [{"AttributeName": "pk", "KeyType": "RANGE"}]},
            "Invalid KeySchema: The first KeySchemaElement is not a HASH key type",
        ),
        (
            {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}] * 2},
            "Invalid KeySchema: The second KeySchemaElement is not a RANGE key type",
        ),
        (
            {
                "KeySchema": [
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    {"AttributeName": "pk", "KeyType": "RANGE"},
                ]
            },
            "Invalid KeySchema: Some index key attribute have no definition",
        ),
        (
            {
                "KeySchema": [
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                    {"AttributeName": "tk", "KeyType": "RANGE"},
                ]
            },
            (
                "1 validation error detected: Value '[KeySchemaElement(attributeName=pk, keyType=HASH), "
                "KeySchemaElement(attributeName=sk, keyType=RANGE), KeySchemaElement(attributeName=tk, "
                "keyType=RANGE)]' at 'keySchema' failed to satisfy constraint: Member must have length "
                "less than or equal to 2"
            ),
        ),
        (
            {"AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "X"}]},
            (
                "1 validation error detected: Value 'X' at 'attributeDefinitions.1.member.attributeType' "
                "failed to satisfy constraint: Member must satisfy enum value set: [B, N, S]"
            ),
        ),
        ({"AttributeDefinitions": attributes("pk", "pk")}, "Attribute Name is duplicated: pk"),
        (
            {"AttributeDefinitions": attributes("x")},
            INVALID
            + "Some index key attributes are not defined in AttributeDefinitions. Keys: [pk], "
            "AttributeDefinitions: [x]",
        ),
        (
            {"AttributeDefinitions": attributes("pk", "x")},
            INVALID
            + "Number of attributes in KeySchema does not exactly match number of attributes "
            "defined in AttributeDefinitions",
        ),
        (
            {
                "AttributeDefinitions": attributes("pk", "v", "x"),
                "GlobalSecondaryIndexes": [index()],
            },
            INVALID + "Some AttributeDefinitions are not used. AttributeDefinitions: [pk, v, x], "
            "keys used: [pk, v]",
        ),
        (
            {"ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}},
            INVALID + "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when "
            "BillingMode is PAY_PER_REQUEST",
        ),
        (
            {"BillingMode": None},
            INVALID + "ReadCapacityUnits and WriteCapacityUnits must both be specified when "
            "BillingMode is PROVISIONED",
        ),
        (
            {
                "BillingMode": None,
                "ProvisionedThroughput": {"ReadCapacityUnits": 0, "WriteCapacityUnits": 1},
            },
            (
                "1 validation error detected: Value '0' at 'provisionedThroughput.readCapacityUnits' "
                "failed to satisfy constraint: Member must have value greater than or equal to 1"
            ),
        ),
        (
            {"BillingMode": "FREE"},
            (
                "1 validation error detected: Value 'FREE' at 'billingMode' failed to satisfy "
                "constraint: Member must satisfy enum value set: [PROVISIONED, PAY_PER_REQUEST]"
            ),
        ),
        (
            {"StreamSpecification": {"StreamEnabled": True}},
            INVALID + "Table is being created with a stream enabled, UpdateViewType is required",
        ),
        (
            {"StreamSpecification": {"StreamEnabled": False, "StreamViewType": "NEW_IMAGE"}},
            INVALID + "Table is being created with a stream disabled, UpdateViewType should not be "
            "specified",
        ),
        ({"GlobalSecondaryIndexes": []}, INVALID + "List of GlobalSecondaryIndexes is empty"),
        (
            {
                "AttributeDefinitions": attributes("pk", "v"),
                "GlobalSecondaryIndexes": [index(), index()],
            },
            INVALID + "Duplicate index name: idx",
        ),
        (
            {
                "AttributeDefinitions": attributes("pk", "v"),
                "GlobalSecondaryIndexes": [index(Projection={"ProjectionType": "INCLUDE"})],
            },
            INVALID + "ProjectionType is INCLUDE, but NonKeyAttributes is not specified",
        ),
        (
            {
                "AttributeDefinitions": attributes("pk", "v"),
                "GlobalSecondaryIndexes": [
                    index(Projection={"ProjectionType": "KEYS_ONLY", "NonKeyAttributes": ["x"]})
                ],
            },
            INVALID + "ProjectionType is KEYS_ONLY, but NonKeyAttributes is specified",
        ),
        (
            {
                "AttributeDefinitions": attributes("pk", "v"),
                "GlobalSecondaryIndexes": [index(Projection=None)],
            },
            INVALID + "Unknown ProjectionType: null",
        ),
        (
            {
                "AttributeDefinitions": attributes("pk", "v"),
                "LocalSecondaryIndexes": [index(keys=("pk", "v"))],
            },
            INVALID
            + "Table KeySchema does not have a range key, which is required when specifying a "
            "LocalSecondaryIndex",
        ),
        (
            LSI_TABLE | {"LocalSecondaryIndexes": [index(keys=("v", "sk"))]},
            INVALID
            + "Index KeySchema does not have the same leading hash key as table KeySchema for "
            "index: idx. index hash key: v, table hash key: pk",
        ),
        (
            LSI_TABLE
            | {
                "AttributeDefinitions": attributes("pk", "sk"),
                "LocalSecondaryIndexes": [index(keys=("pk",))],
            },
            INVALID + "Index KeySchema does not have a range key for index: idx",
        ),
        (
            LSI_TABLE
            | {"LocalSecondaryIndexes": [index(f"idx{n}", keys=("pk", "v")) for n in range(6)]},
            INVALID + "Number of LocalSecondaryIndexes exceeds per-table limit of 5",
        ),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(db, changes, message):
    assert db.invalid("CreateTable", **definition(**changes)) == message
    assert db("ListTables") == {"TableNames": []}


def test_a_table_is_created_once(db):
    db.table()
    refusal = db.refused("CreateTable", **definition())
    assert refusal == ("ResourceInUseException", "Table already exists: table")


def test_tables_are_listed_by_name_in_pages(db):
    for name in ("ccc", "aaa", "bbb"):
        db.table(name)
    assert db("ListTables") == {"TableNames": ["aaa", "bbb", "ccc"]}
    page = db("ListTables", Limit=2)
    assert page == {"TableNames": ["aaa", "bbb"], "LastEvaluatedTableName": "bbb"}
    assert db("ListTables", ExclusiveStartTableName="bbb") == {"TableNames": ["ccc"]}
    assert db("ListTables", ExclusiveStartTableName="abc")["TableNames"] == ["bbb", "ccc"]
    assert db.invalid("ListTables", Limit=101).endswith("less than or equal to 100")


def test_a_deleted_table_is_gone_and_its_stream_readable_for_a_day(db, build):
    db.table(StreamSpecification=ON)
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="b"))
    arn = describe(db)["LatestStreamArn"]
    deleted = db("DeleteTable", TableName="table")["TableDescription"]
    assert deleted["TableStatus"] == "DELETING"
    for operation in ("DescribeTable", "DeleteTable"):
        assert db.refused(operation, TableName="table") == (
            "ResourceNotFoundException",
            "Requested resource not found: Table: table not found",
        )
    assert db.engine.streams.find(arn).status == "DISABLED"
    assert len(db.records()) == 1
    db.table()
    assert db.everything() == []


def test_provisioned_indexes_have_throughput_of_their_own(db, build):
    units = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    options = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": units}
    request = definition(
        **options,
        AttributeDefinitions=attributes("pk", "v"),
        GlobalSecondaryIndexes=[index()],
    )
    assert db.invalid("CreateTable", **request) == (
        INVALID + "ProvisionedThroughput is not specified for index: idx"
    )
    request["GlobalSecondaryIndexes"] = [index(ProvisionedThroughput=units)]
    db("CreateTable", **request)
    more = {"ReadCapacityUnits": 7, "WriteCapacityUnits": 5}
    update = {"Update": {"IndexName": "idx", "ProvisionedThroughput": more}}
    db("UpdateTable", TableName="table", GlobalSecondaryIndexUpdates=[update])
    (described,) = describe(db)["GlobalSecondaryIndexes"]
    assert described["ProvisionedThroughput"]["ReadCapacityUnits"] == 7
    request = definition(
        TableName="other",
        AttributeDefinitions=attributes("pk", "v"),
        GlobalSecondaryIndexes=[index(ProvisionedThroughput=units)],
    )
    assert "should not be specified for index: idx" in db.invalid("CreateTable", **request)
