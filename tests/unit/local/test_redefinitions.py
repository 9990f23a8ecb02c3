"""UpdateTable."""

ON = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
OFF = {"StreamEnabled": False}
INVALID = "One or more parameter values were invalid: "


def describe(db, name="table"):
    return db("DescribeTable", TableName=name)["Table"]


def attributes(*names):
    return [{"AttributeName": name, "AttributeType": "S"} for name in names]


def test_a_stream_is_turned_off_and_comes_back_with_another_arn(db, build):
    db.table(StreamSpecification=ON)
    first = describe(db)["LatestStreamArn"]
    db("UpdateTable", TableName="table", StreamSpecification=OFF)
    table = describe(db)
    assert "StreamSpecification" not in table
    assert table["LatestStreamArn"] == first
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="unseen"))
    message = db.invalid("UpdateTable", TableName="table", StreamSpecification=OFF)
    assert message == "Table has no stream to disable: TableName: table"
    db.now += 1
    db("UpdateTable", TableName="table", StreamSpecification=ON)
    assert describe(db)["LatestStreamArn"] != first
    message = db.invalid("UpdateTable", TableName="table", StreamSpecification=ON)
    assert message == "Table already has an enabled stream: TableName: table"
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="seen"))
    assert [record["dynamodb"]["Keys"]["sk"]["S"] for record in db.records()] == ["seen"]
    db("UpdateTable", TableName="table", StreamSpecification=OFF)
    db.now += 86_401
    assert "LatestStreamArn" not in describe(db)


def create_index(build, *keys, **more):
    return {
        "TableName": "table",
        "AttributeDefinitions": attributes(*keys),
        "GlobalSecondaryIndexUpdates": [{"Create": build.gsi("new", *keys) | more}],
    }


def test_a_new_index_has_the_items_there_are_but_those_of_another_type(db, build):
    db.table()
    for sk, v in (("1", "x"), ("2", 5), ("3", {"S": ""})):
        db("PutItem", TableName="table", Item=build.item(pk="a", sk=sk, v=v))
    db("UpdateTable", **create_index(build, "v"))
    assert [item["sk"]["S"] for item in db.everything(IndexName="new")] == ["1"]
    assert {part["AttributeName"] for part in describe(db)["AttributeDefinitions"]} == {
        "pk",
        "sk",
        "v",
    }
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="4", v="y"))
    assert len(db.everything(IndexName="new")) == 2
    assert db.invalid("UpdateTable", **create_index(build, "v")) == (
        "Attempting to create an index which already exists"
    )
    db(
        "UpdateTable",
        TableName="table",
        GlobalSecondaryIndexUpdates=[{"Delete": {"IndexName": "new"}}],
    )
    table = describe(db)
    assert "GlobalSecondaryIndexes" not in table
    assert {part["AttributeName"] for part in table["AttributeDefinitions"]} == {"pk", "sk"}
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="5", v=7))


def test_index_changes_that_make_no_sense_are_refused(db, build):
    db.table(LocalSecondaryIndexes=[build.gsi("lsi", "pk", "v")])

    def change(*updates):
        return {"TableName": "table", "GlobalSecondaryIndexUpdates": list(updates)}

    refusal = db.refused("UpdateTable", **change({"Delete": {"IndexName": "none"}}))
    assert refusal == ("ResourceNotFoundException", "Requested resource not found")
    assert db.invalid("UpdateTable", **change({"Delete": {"IndexName": "lsi"}})) == (
        "Cannot delete an index that is not a GlobalSecondaryIndex: lsi"
    )
    assert db.invalid("UpdateTable", **change({})).endswith("must not be null")
    both = {"Delete": {"IndexName": "lsi"}, "Update": {"IndexName": "lsi"}}
    assert "Only one global secondary index action" in db.invalid("UpdateTable", **change(both))
    assert db.invalid("UpdateTable", **change()).endswith(
        "List of GlobalSecondaryIndexUpdates is empty"
    )
    missing = create_index(build, "w") | {"AttributeDefinitions": attributes("pk")}
    assert db.invalid("UpdateTable", **missing) == (
        INVALID + "AttributeDefinitions is not specified for index: new"
    )
    assert db.invalid("UpdateTable", TableName="table").startswith(
        "At least one of ProvisionedThroughput, BillingMode, "
    )


def test_the_billing_mode_changes_both_ways(db):
    units = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    db.table(BillingMode="PROVISIONED", ProvisionedThroughput=units)
    message = db.invalid("UpdateTable", TableName="table", ProvisionedThroughput=units)
    assert message.startswith("The provisioned throughput for the table will not change.")
    db("UpdateTable", TableName="table", ProvisionedThroughput=units | {"ReadCapacityUnits": 9})
    assert describe(db)["ProvisionedThroughput"]["ReadCapacityUnits"] == 9
    db("UpdateTable", TableName="table", BillingMode="PAY_PER_REQUEST")
    assert describe(db)["ProvisionedThroughput"]["ReadCapacityUnits"] == 0
    assert describe(db)["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    db("UpdateTable", TableName="table", BillingMode="PAY_PER_REQUEST")
    message = db.invalid("UpdateTable", TableName="table", ProvisionedThroughput=units)
    assert message.startswith(INVALID + "Neither ReadCapacityUnits nor WriteCapacityUnits")
    message = db.invalid("UpdateTable", TableName="table", BillingMode="PROVISIONED")
    assert (
        message
        == INVALID + "ProvisionedThroughput must be specified when BillingMode is PROVISIONED"
    )
    db("UpdateTable", TableName="table", BillingMode="PROVISIONED", ProvisionedThroughput=units)
    assert describe(db)["ProvisionedThroughput"]["WriteCapacityUnits"] == 5


def test_a_refused_update_changes_nothing(db, build):
    db.table(StreamSpecification=ON)
    before = describe(db)
    db.invalid(
        "UpdateTable",
        TableName="table",
        DeletionProtectionEnabled=True,
        StreamSpecification=ON,
    )
    assert describe(db) == before


def test_an_attribute_in_use_keeps_its_type(db, build):
    db.table()
    request = create_index(build, "v")
    request["AttributeDefinitions"].append({"AttributeName": "pk", "AttributeType": "N"})
    db("UpdateTable", **request)
    kinds = {
        part["AttributeName"]: part["AttributeType"]
        for part in describe(db)["AttributeDefinitions"]
    }
    assert kinds == {"pk": "S", "sk": "S", "v": "S"}
