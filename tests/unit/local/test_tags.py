"""Tags, and what clients ask about the account."""


def describe(db, name="table"):
    return db("DescribeTable", TableName=name)["Table"]


def test_tags_are_added_replaced_and_removed(db):
    db.table()
    arn = describe(db)["TableArn"]

    def tags():
        listed = db("ListTagsOfResource", ResourceArn=arn)["Tags"]
        return {tag["Key"]: tag["Value"] for tag in listed}

    db(
        "TagResource",
        ResourceArn=arn,
        Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}],
    )
    db("TagResource", ResourceArn=arn, Tags=[{"Key": "a", "Value": "3"}])
    assert tags() == {"a": "3", "b": "2"}
    db("UntagResource", ResourceArn=arn, TagKeys=["a", "none"])
    assert tags() == {"b": "2"}
    many = [{"Key": f"k{n}", "Value": ""} for n in range(50)]
    assert db.invalid("TagResource", ResourceArn=arn, Tags=many) == (
        "Number of Tags exceed the current limit for the provided ResourceArn"
    )
    for wrong in ({"Key": "aws:x", "Value": ""}, {"Key": "", "Value": ""}, {"Key": "x"}):
        db.invalid("TagResource", ResourceArn=arn, Tags=[wrong])
    db.invalid("TagResource", ResourceArn=arn, Tags=[])
    db.invalid("UntagResource", ResourceArn=arn, TagKeys=[])
    db.invalid("TagResource", ResourceArn="table", Tags=many[:1])
    gone = arn + "s"
    assert db.refused("ListTagsOfResource", ResourceArn=gone)[0] == "AccessDeniedException"
    refusal = db.refused("TagResource", ResourceArn=gone, Tags=many[:1])
    assert refusal[0] == "ResourceNotFoundException"


def test_what_clients_ask_in_passing_is_answered(db):
    db.table()
    (endpoint,) = db("DescribeEndpoints")["Endpoints"]
    assert endpoint["Address"] == "dynamodb.us-east-1.amazonaws.com"
    assert db("DescribeLimits")["TableMaxWriteCapacityUnits"] == 40_000
    backups = db("DescribeContinuousBackups", TableName="table")["ContinuousBackupsDescription"]
    assert backups["ContinuousBackupsStatus"] == "ENABLED"
    assert db.refused("DescribeContinuousBackups", TableName="none") == (
        "TableNotFoundException",
        "Table not found: none",
    )
