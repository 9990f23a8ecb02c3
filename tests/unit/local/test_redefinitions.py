"""UpdateTable."""

ON = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
OFF = {"StreamEnabled": False}
INVALID = "One or more parameter values were invalid: "


def describe(db, name="table"):
    return db("DescribeTable", TableName=name)["Table"]


def indexes(db):
    return {one["IndexName"]: one for one in describe(db)["GlobalSecondaryIndexes"]}


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


def test_a_new_index_is_creating_until_it_can_be_read(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("old", "w")])
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="1", v="x"))
    db.engine.index_creation = 300.0
    reply = db("UpdateTable", **create_index(build, "v"))["TableDescription"]
    assert reply["TableStatus"] == "UPDATING"
    old, new = sorted(reply["GlobalSecondaryIndexes"], key=lambda one: one["IndexStatus"])
    assert (old["IndexName"], old["IndexStatus"]) == ("old", "ACTIVE")
    assert (new["IndexName"], new["IndexStatus"], new["Backfilling"]) == ("new", "CREATING", True)
    for read in ("Scan", "Query"):
        asked = {
            "KeyConditionExpression": "v = :v",
            "ExpressionAttributeValues": {":v": {"S": "x"}},
        }
        request = {"TableName": "table", "IndexName": "new", **(asked if read == "Query" else {})}
        assert db.invalid(read, **request) == (
            "Cannot read from backfilling global secondary index: new"
        )
    one_more = create_index(build, "z", IndexName="more")
    code, message = db.refused("UpdateTable", **one_more)
    assert code == "LimitExceededException"
    assert "Only 1 online index can be created or deleted simultaneously" in message
    # Writes of that time are in the index, too.
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="2", v="x"))
    db.now += 299
    assert indexes(db)["new"]["IndexStatus"] == "CREATING"
    db.now += 1
    table = describe(db)
    assert indexes(db)["new"]["IndexStatus"] == "ACTIVE"
    assert all("Backfilling" not in index for index in table["GlobalSecondaryIndexes"])
    assert len(db.everything(IndexName="new")) == 2
    db("UpdateTable", **one_more)


def test_a_table_is_active_while_an_index_is_filled_and_cannot_be_deleted(db, build):
    """So a program that waits for the table alone reads the index too early."""
    db.table()
    db.engine.index_creation = 300.0
    db("UpdateTable", **create_index(build, "v"))
    assert describe(db)["TableStatus"] == "ACTIVE"
    assert indexes(db)["new"]["IndexStatus"] == "CREATING"
    assert db.refused("DeleteTable", TableName="table") == (
        "ResourceInUseException",
        "Attempt to change a resource which is still in use: Table is being updated: table",
    )
    db.now += 300
    db("DeleteTable", TableName="table")


def test_an_index_that_is_being_created_can_be_deleted_and_no_other(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("old", "w")])
    db.engine.index_creation = 300.0
    db("UpdateTable", **create_index(build, "v"))

    def delete(name):
        update = {"Delete": {"IndexName": name}}
        return {"TableName": "table", "GlobalSecondaryIndexUpdates": [update]}

    assert db.refused("UpdateTable", **delete("old"))[0] == "LimitExceededException"
    db("UpdateTable", **delete("new"))
    assert indexes(db).keys() == {"old"}


def test_the_throughput_of_an_index_changes_while_one_is_being_created(db, build):
    """Only one index comes or goes at a time; more throughput lets its creation end sooner."""
    units = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    db.table(BillingMode="PROVISIONED", ProvisionedThroughput=units)
    db.engine.index_creation = 300.0
    db("UpdateTable", **create_index(build, "v", ProvisionedThroughput=units))
    more = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 50}
    update = {"Update": {"IndexName": "new", "ProvisionedThroughput": more}}
    db("UpdateTable", TableName="table", GlobalSecondaryIndexUpdates=[update])
    new = indexes(db)["new"]
    assert new["IndexStatus"] == "CREATING"
    assert new["ProvisionedThroughput"]["WriteCapacityUnits"] == 50


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
    db.table(GlobalSecondaryIndexes=[build.gsi("old", "v", "w")])
    before = describe(db)

    def redefine(name, *keys):
        request = create_index(build, *keys)
        for definition in request["AttributeDefinitions"]:
            if definition["AttributeName"] == name:
                definition["AttributeType"] = "N"
        return db.invalid("UpdateTable", **request)

    redefined = (
        INVALID + "Attributes cannot be redefined. Please check that your attribute has the same "
        "type as previously defined. Existing schema: Schema:[SchemaElement: "
    )
    assert redefine("w", "w") == (
        redefined + "key{v:S:HASH}, SchemaElement: key{w:S:RANGE}] "
        "New schema: Schema:[SchemaElement: key{w:N:HASH}]"
    )
    assert redefine("pk", "x", "pk") == (
        redefined + "key{pk:S:HASH}, SchemaElement: key{sk:S:RANGE}] "
        "New schema: Schema:[SchemaElement: key{x:S:HASH}, SchemaElement: key{pk:N:RANGE}]"
    )
    assert describe(db) == before


def test_a_new_index_needs_the_types_of_its_keys_though_they_are_known(db, build):
    db.table()
    request = create_index(build, "sk", "pk")
    del request["AttributeDefinitions"][1]
    missing = INVALID + "AttributeDefinitions is not specified for index: new"
    assert db.invalid("UpdateTable", **request) == missing
    del request["AttributeDefinitions"]
    assert db.invalid("UpdateTable", **request) == missing
    db("UpdateTable", **create_index(build, "sk", "pk"))


def test_one_index_comes_or_goes_at_a_time(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("one", "v"), build.gsi("two", "w")])
    before = describe(db)
    create = create_index(build, "x")["GlobalSecondaryIndexUpdates"]
    deletes = [{"Delete": {"IndexName": name}} for name in ("one", "two")]
    for updates in ([*create, deletes[0]], deletes, [*create, create[0]]):
        request = create_index(build, "x") | {"GlobalSecondaryIndexUpdates": updates}
        assert db.refused("UpdateTable", **request) == (
            "LimitExceededException",
            (
                "Subscriber limit exceeded: Only 1 online index can be created or deleted "
                "simultaneously per table"
            ),
        )
    assert describe(db) == before


def test_local_indexes_do_not_count_among_the_twenty_global_ones(db, build):
    known = [build.gsi(f"index{n}", f"v{n}") for n in range(19)]
    db.table(GlobalSecondaryIndexes=known, LocalSecondaryIndexes=[build.gsi("local", "pk", "w")])
    db("UpdateTable", **create_index(build, "x"))
    code, message = db.refused("UpdateTable", **create_index(build, "y", IndexName="more"))
    assert (code, message[-2:]) == ("LimitExceededException", "20")


UNITS = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}


def test_some_changes_are_made_alone(db, build):
    db.table(BillingMode="PROVISIONED", ProvisionedThroughput=UNITS)
    before = describe(db)
    index = create_index(build, "v", ProvisionedThroughput=UNITS)
    more = {"ReadCapacityUnits": 9, "WriteCapacityUnits": 9}
    alone = " modification must be the only operation in the request"
    for changes, message in (
        ({"DeletionProtectionEnabled": True, "StreamSpecification": ON}, "DeletionProtection"),
        ({"TableClass": "STANDARD", "ProvisionedThroughput": more}, "TableClass"),
        (
            {"SSESpecification": {"Enabled": True}, "DeletionProtectionEnabled": True},
            "Server-Side Encryption",
        ),
        (index | {"DeletionProtectionEnabled": True}, "DeletionProtection"),
    ):
        refused = db.invalid("UpdateTable", **{"TableName": "table"} | changes)
        assert refused == INVALID + message + alone
    for changes, message in (
        (
            index | {"ProvisionedThroughput": more},
            "create or delete index while updating table IOPS",
        ),
        (
            index | {"StreamSpecification": ON},
            "create or delete index while changing stream status",
        ),
        (
            {"StreamSpecification": ON, "ProvisionedThroughput": more},
            "modify stream status while updating table IOPS",
        ),
    ):
        refused = db.invalid("UpdateTable", **{"TableName": "table"} | changes)
        assert refused == f"{INVALID}You cannot {message}"
    assert describe(db) == before
    db("UpdateTable", TableName="table", BillingMode="PAY_PER_REQUEST", StreamSpecification=ON)


def test_an_update_of_a_stream_has_messages_of_its_own(db):
    db.table()
    for wrong, message in (
        ({"StreamEnabled": True}, "If stream is being enabled then UpdateViewType is required"),
        (
            ON | {"StreamEnabled": False},
            "If stream is being disabled, then UpdateViewType must not be specified",
        ),
    ):
        refused = db.invalid("UpdateTable", TableName="table", StreamSpecification=wrong)
        assert refused == INVALID + message


def test_the_units_of_an_index_change_with_those_of_its_table(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("idx", "v")])

    def change(**more):
        update = {"Update": {"IndexName": "idx", **more}}
        return {"TableName": "table", "GlobalSecondaryIndexUpdates": [update]}

    assert "can be to OnDemandThroughput" in db.invalid("UpdateTable", **change())
    assert db.invalid("UpdateTable", **change(ProvisionedThroughput=UNITS)) == (
        INVALID + "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified for index: "
        "idx when BillingMode is PAY_PER_REQUEST"
    )
    provisioned = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": UNITS}
    assert db.invalid("UpdateTable", TableName="table", **provisioned) == (
        INVALID + "ProvisionedThroughput must be specified for index: idx"
    )
    db("UpdateTable", **change(ProvisionedThroughput=UNITS), **provisioned)
    assert db.invalid("UpdateTable", **change(ProvisionedThroughput=UNITS)).startswith(
        "The provisioned throughput for the index idx will not change. The requested value equals"
    )
    db("UpdateTable", **change(ProvisionedThroughput=UNITS | {"ReadCapacityUnits": 6}))
    (index,) = describe(db)["GlobalSecondaryIndexes"]
    assert index["ProvisionedThroughput"]["ReadCapacityUnits"] == 6


def test_options_that_mean_nothing_are_refused(db):
    db.table()
    for changes, message in (
        ({"SSESpecification": {"Enabled": False}}, "Table is already encrypted by default"),
        (
            {"SSESpecification": {"Enabled": False, "SSEType": "KMS"}},
            "SSEType can not be specified if Enabled is false",
        ),
        (
            {"OnDemandThroughput": {"MaxReadRequestUnits": 0}},
            (
                "Requested MaxReadRequestUnits for OnDemandThroughput for table is outside of valid "
                "range"
            ),
        ),
        (
            {"OnDemandThroughput": {"MaxReadRequestUnits": 5}, "StreamSpecification": ON},
            "OnDemandThroughput can only be combined with BillingMode in an UpdateTable request",
        ),
    ):
        assert db.invalid("UpdateTable", TableName="table", **changes) == INVALID + message


def test_an_index_is_updated_once_in_a_request(db, build):
    index = build.gsi("one", "v") | {"ProvisionedThroughput": UNITS}
    db.table(BillingMode="PROVISIONED", ProvisionedThroughput=UNITS, GlobalSecondaryIndexes=[index])
    update = {"IndexName": "one", "ProvisionedThroughput": UNITS | {"ReadCapacityUnits": 7}}
    assert db.invalid(
        "UpdateTable",
        TableName="table",
        GlobalSecondaryIndexUpdates=[{"Update": update}, {"Update": update}],
    ) == (
        f"{INVALID}Only one global secondary index update per index is allowed simultaneously. "
        "Index: one"
    )
