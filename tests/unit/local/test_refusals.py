"""What passes here and is refused by AWS fails in production: each of these is refused here too.

The messages are the service's own where they are known. What AWS takes is taken, at the bottom.
"""

import copy

import pytest

from streamkit.local.errors import ApiError
from streamkit.local.expressions import Placeholders, parse_condition, parse_update
from streamkit.local.values import canonical

INVALID = "One or more parameter values were invalid: "
LONG = "n" * 65_536
TOO_LARGE = "Attribute name is too large, must be less than 65536 bytes"
HASH_TOO_LONG = f"{INVALID}Size of hashkey has exceeded the maximum size limit of2048 bytes"
RANGE_TOO_LONG = (
    f"{INVALID}Aggregated size of all range keys has exceeded the size limit of 1024 bytes"
)
KEY_TOO_LONG = "The expression attribute map contains a key that is too long; size of key: 256"
KEY = {"pk": {"S": "a"}, "sk": {"S": "1"}}
ONE = {"N": "1"}


@pytest.fixture
def table(db, build):
    """A table with an index of each kind."""
    return db.table(
        GlobalSecondaryIndexes=[build.gsi("global", "g", "r")],
        LocalSecondaryIndexes=[build.gsi("local", "pk", "l")],
    )


def update(text, *, names=None, **values):
    request = {"Key": KEY, "UpdateExpression": text}
    if values:
        request["ExpressionAttributeValues"] = {f":{name}": one for name, one in values.items()}
    return request | ({"ExpressionAttributeNames": names} if names else {})


def put(**attributes):
    return {"Item": KEY | attributes}


# -- old parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "payload", "mixed"),
    [
        ("Query", {"KeyConditionExpression": "pk = :a"}, {"QueryFilter": {}}),
        ("Scan", {"FilterExpression": "a = :a"}, {"ScanFilter": {}}),
        ("GetItem", {"Key": KEY, "ProjectionExpression": "a"}, {"AttributesToGet": ["a"]}),
        ("PutItem", put() | {"ConditionExpression": "a = :a"}, {"Expected": {}}),
        ("DeleteItem", {"Key": KEY, "ConditionExpression": "a = :a"}, {"Expected": {}}),
        ("UpdateItem", update("SET a = :a"), {"AttributeUpdates": {}}),
    ],
)
def test_no_operation_takes_old_parameters_and_expressions_together(
    db, table, operation, payload, mixed
):
    said = db.invalid(operation, TableName=table, **payload, **mixed)
    assert said.startswith("Can not use both expression and non-expression parameters in the same")


# -- names of attributes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "payload", "message"),
    [
        ("PutItem", {"Item": KEY | {"": ONE}}, "Empty attribute name"),
        ("PutItem", put(m={"M": {"x": {"L": [{"M": {"": ONE}}]}}}), "Empty attribute name"),
        ("PutItem", {"Item": KEY | {LONG: ONE}}, TOO_LARGE),
        ("PutItem", {"Item": KEY | {"ü" * 32_768: ONE}}, TOO_LARGE),
        ("PutItem", put(m={"M": {LONG: ONE}}), TOO_LARGE),
        (
            "UpdateItem",
            update("SET m = :m", m={"M": {"": ONE}}),
            "ExpressionAttributeValues contains invalid value: Empty attribute name for key :m",
        ),
        (
            "UpdateItem",
            update("SET #n = :one", names={"#n": LONG}, one=ONE),
            f"ExpressionAttributeNames contains invalid value: {TOO_LARGE} for key #n",
        ),
        (
            "UpdateItem",
            update("SET #n = :one", names={"#" + "n" * 255: "x"}, one=ONE),
            f"ExpressionAttributeNames contains invalid key: {KEY_TOO_LONG}",
        ),
        (
            "UpdateItem",
            update("SET n = :one", **{"o" * 255: ONE}),
            f"ExpressionAttributeValues contains invalid key: {KEY_TOO_LONG}",
        ),
        ("UpdateItem", {"Key": KEY, "AttributeUpdates": {LONG: {"Value": ONE}}}, TOO_LARGE),
        (
            "UpdateItem",
            {"Key": KEY, "AttributeUpdates": {"": {"Value": ONE}}},
            "Empty attribute name",
        ),
        ("GetItem", {"Key": KEY, "AttributesToGet": [LONG]}, TOO_LARGE),
        ("GetItem", {"Key": KEY, "AttributesToGet": [""]}, "Empty attribute name"),
        ("PutItem", put() | {"Expected": {"": {"Exists": False}}}, "Empty attribute name"),
    ],
)
def test_an_attribute_has_a_name_of_1_to_65535_bytes(db, table, operation, payload, message):
    assert db.invalid(operation, TableName=table, **payload) == message


def test_a_batch_and_a_transaction_check_names_too(db, table):
    item = KEY | {"": ONE}
    batch = {table: [{"PutRequest": {"Item": item}}]}
    assert db.invalid("BatchWriteItem", RequestItems=batch) == "Empty attribute name"
    actions = [{"Put": {"TableName": table, "Item": item}}]
    assert db.invalid("TransactWriteItems", TransactItems=actions) == "Empty attribute name"


def test_a_name_of_65535_bytes_is_taken(db, table):
    for name in (LONG[1:], "ü" * 32_767):
        db("PutItem", TableName=table, Item=KEY | {name: ONE})
        assert db("GetItem", TableName=table, Key=KEY)["Item"] == KEY | {name: ONE}


# -- keys of indexes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"g": {"S": "x" * 2049}, "r": {"S": "x"}}, HASH_TOO_LONG),
        ({"g": {"S": "x" * 2049}}, HASH_TOO_LONG),
        ({"g": {"S": "ü" * 1025}, "r": {"S": "x"}}, HASH_TOO_LONG),
        ({"g": {"S": "x"}, "r": {"S": "x" * 1025}}, RANGE_TOO_LONG),
        ({"l": {"S": "x" * 1025}}, RANGE_TOO_LONG),
    ],
)
def test_a_key_of_an_index_is_no_longer_than_a_key_of_a_table(db, table, attributes, message):
    assert db.invalid("PutItem", TableName=table, **put(**attributes)) == message
    setting = ", ".join(f"{name} = :{name}" for name in attributes)
    refused = db.invalid("UpdateItem", TableName=table, **update(f"SET {setting}", **attributes))
    assert refused == message
    assert "Item" not in db("GetItem", TableName=table, Key=KEY)


def test_keys_of_an_index_may_be_as_long_as_the_limit(db, table):
    longest = put(g={"S": "x" * 2048}, r={"S": "x" * 1024}, l={"S": "y" * 1024})
    db("PutItem", TableName=table, **longest)
    assert db.everything(IndexName="global") == db.everything(IndexName="local")


def test_a_new_index_leaves_out_items_whose_keys_are_too_long_for_it(db, build):
    table = db.table(keys="pk:S")
    for length in (1024, 1025, 2048, 2049):
        db("PutItem", TableName=table, Item=build.item(pk=str(length), x="a" * length))
    for name, keys in (("hashed", ("x",)), ("ranged", ("pk", "x"))):
        db(
            "UpdateTable",
            TableName=table,
            AttributeDefinitions=[
                {"AttributeName": key, "AttributeType": "S"} for key in ("pk", "x")
            ],
            GlobalSecondaryIndexUpdates=[{"Create": build.gsi(name, *keys)}],
        )
    found = {
        name: sorted(item["pk"]["S"] for item in db.everything(IndexName=name))
        for name in ("hashed", "ranged")
    }
    assert found == {"hashed": ["1024", "1025", "2048"], "ranged": ["1024"]}


# -- expressions -----------------------------------------------------------------------------------


def refusal(parse, text, **values):
    given = {f":{name}": one for name, one in values.items()}
    placeholders = Placeholders(None, given or None, expressions={"ConditionExpression": text})
    with pytest.raises(ApiError) as caught:
        parse(text, placeholders)
    assert caught.value.code == "ValidationException"
    return caught.value.message.partition(": ")[2]


@pytest.mark.parametrize(
    "text",
    [
        "SET a = list_append(list_append(:l, :l), :l)",
        "SET a = list_append(:l, list_append(:l, :l))",
        "SET a = list_append(:l, (list_append(:l, :l)))",
        "SET a = if_not_exists(b, list_append(:l, :l))",
    ],
)
def test_list_append_does_not_nest(text):
    assert refusal(parse_update, text, l={"L": []}) == (
        "The function is not allowed to be used this way in an expression; function: list_append"
    )


def test_if_not_exists_nests(db, table):
    text = "SET a = list_append(if_not_exists(a, if_not_exists(b, :l)), :l)"
    db("UpdateItem", TableName=table, **update(text, l={"L": [ONE]}))
    assert db("GetItem", TableName=table, Key=KEY)["Item"]["a"] == {"L": [ONE, ONE]}


@pytest.mark.parametrize("text", ["SET a = ((b))", "SET a = ((b + :v))", "SET a = ((((b)))) + :v"])
def test_an_update_has_no_redundant_parentheses_either(text):
    expected = "The expression has redundant parentheses;"
    assert refusal(parse_update, text, v=ONE) == expected


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("BETWEEN", "a.b BETWEEN a.b AND c"),
        ("BETWEEN", "a.b BETWEEN c AND a.b"),
        ("IN", "a.b IN (c, :v, a.b)"),
        ("=", "a.b = a.b"),
        ("contains", "contains(a.b, a.b)"),
    ],
)
def test_the_first_operand_is_none_of_the_others(operator, text):
    assert refusal(parse_condition, text, v=ONE) == (
        "The first operand must be distinct from the remaining operands for this operator or "
        f"function; operator: {operator}, first operand: [a, b]"
    )


def nested_or(depth):
    return "a<b " + "or (a<b " * depth + ")" * depth


def nested_not(depth):
    return "not (" * depth + "a<b" + ")" * depth


def nested_default(depth):
    return "SET a = " + "if_not_exists(b," * depth + "c" + ")" * depth


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_condition, nested_or(149)),
        (parse_condition, nested_not(299)),
        (parse_condition, "not " * 299 + "a<b"),
        (parse_condition, " or ".join(["a<b"] * 150)),
        (parse_condition, " and ".join(["a between b and c"] * 150)),
        (parse_update, nested_default(239)),
    ],
)
def test_an_expression_has_300_operators_however_they_nest(parse, text):
    placeholders = Placeholders(None, None, expressions={"ConditionExpression": text})
    parsed = parse(text, placeholders)
    item = {"a": {"N": "1"}, "b": {"N": "2"}, "c": {"N": "3"}}
    if parse is parse_condition:
        assert parsed.matches(item) in (True, False)
    else:
        assert parsed.apply(item, key_attributes=frozenset()).item["a"] == {"N": "2"}


@pytest.mark.parametrize(
    "text",
    [
        nested_or(150),
        nested_or(454),
        nested_not(300),
        "not " * 300 + "a<b",
        "not " * 1000 + "a<b",
        " or ".join(["a<b"] * 151),
        " and ".join(["a<b"] * 151),
        " and ".join(["attribute_exists(a)"] * 151),
    ],
)
def test_and_or_and_not_are_operators(text):
    assert refusal(parse_condition, text) == (
        "The expression contains too many operators; operator count: 301"
    )


def test_parentheses_of_any_depth_are_redundant_and_not_too_many_operators():
    redundant = "The expression has redundant parentheses;"
    for text in ("(" * 2046 + "a<b" + ")" * 2046, "a < " + "(" * 2000 + "b" + ")" * 2000):
        assert refusal(parse_condition, text) == redundant
    assert refusal(parse_update, "SET a = " + "(" * 2000 + "b" + ")" * 2000) == redundant
    unfinished = refusal(parse_condition, "(" * 4096)
    assert unfinished == 'Syntax error; token: "<EOF>", near: "("'


def test_calls_that_nest_deeply_have_the_fault_of_one_that_nests_once():
    size = "a < " + "size(" * 600 + "b" + ")" * 600
    assert refusal(parse_condition, size) == refusal(parse_condition, "a < size(size(b))")
    unknown = "a < " + "f(" * 1300 + "b" + ")" * 1300
    assert refusal(parse_condition, unknown) == "Invalid function name; function: f"


@pytest.mark.parametrize(
    ("name", "title"),
    [("pk.x", "Key"), ("sk[0]", "Key"), ("g.x", "IndexKey"), ("l[1]", "IndexKey")],
)
def test_an_expression_of_a_read_does_not_look_into_a_key(db, table, name, title):
    attribute = name.partition(".")[0].partition("[")[0]
    message = (
        "Key attributes must be scalars; list random access '[]' and map lookup '.' are not "
        f"allowed: {title}: {attribute}"
    )
    shown = {"ProjectionExpression": f"a, {name}"}
    wanted = {
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": "a"}},
    }
    filtered = {"FilterExpression": f"attribute_exists({name})"}
    get = {"TableName": table, "Key": KEY} | shown
    for operation, payload in (
        ("GetItem", get),
        ("Scan", {"TableName": table} | shown),
        ("Scan", {"TableName": table} | filtered),
        ("Query", {"TableName": table} | wanted | shown),
        ("BatchGetItem", {"RequestItems": {table: {"Keys": [KEY]} | shown}}),
        ("TransactGetItems", {"TransactItems": [{"Get": get}]}),
    ):
        assert db.invalid(operation, **payload) == message
    if title == "IndexKey":
        query = {"TableName": table} | wanted | filtered
        assert db.invalid("Query", **query) == message


# -- values ----------------------------------------------------------------------------------------


def test_a_null_is_true():
    with pytest.raises(ApiError) as caught:
        canonical({"L": [{"NULL": False}]})
    assert (
        caught.value.message == f"{INVALID}Null attribute value types must have the value of true"
    )


# -- definitions -----------------------------------------------------------------------------------


def definition(build, name="k", **more):
    return {
        "TableName": "made",
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": build.schema(name),
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"}],
    } | more


def too_long(name, where, least=None):
    bound = "less than or equal to 255" if least is None else f"greater than or equal to {least}"
    return (
        f"1 validation error detected: Value '{name}' at '{where}' failed to satisfy constraint: "
        f"Member must have length {bound}"
    )


def test_the_name_of_a_key_has_1_to_255_characters(db, build):
    name, where = "k" * 256, "attributeDefinitions.1.member.attributeName"
    assert db.invalid("CreateTable", **definition(build, name)) == too_long(name, where)
    assert db.invalid("CreateTable", **definition(build, "")) == too_long("", where, least=1)
    schema = definition(build) | {"KeySchema": build.schema(name)}
    assert db.invalid("CreateTable", **schema) == too_long(name, "keySchema.1.member.attributeName")
    index = definition(build, GlobalSecondaryIndexes=[build.gsi("idx", name)])
    assert db.invalid("CreateTable", **index) == too_long(
        name, "globalSecondaryIndexes.1.member.keySchema.1.member.attributeName"
    )
    db("CreateTable", **definition(build, name[1:]))
    later = {
        "TableName": "made",
        "AttributeDefinitions": [{"AttributeName": "x", "AttributeType": "S"}],
        "GlobalSecondaryIndexUpdates": [{"Create": build.gsi("idx", name)}],
    }
    where = "globalSecondaryIndexUpdates.1.member.create.keySchema.1.member.attributeName"
    assert db.invalid("UpdateTable", **later) == too_long(name, where)


def test_an_index_names_at_most_20_attributes_and_a_table_100(db, build):
    where = "globalSecondaryIndexes.1.member.projection.nonKeyAttributes"

    def made(*projections):
        indexes = [
            build.gsi(f"idx{number}", "k", projection=[f"{number}-{one}" for one in names])
            for number, names in enumerate(projections)
        ]
        return definition(build, GlobalSecondaryIndexes=indexes)

    refused = db.invalid("CreateTable", **made(range(21)))
    assert f"at '{where}' failed to satisfy" in refused
    assert refused.endswith("Member must have length less than or equal to 20")
    assert f"at '{where}.1.member' failed" in db.invalid("CreateTable", **made(["n" * 256]))
    refused = db.invalid("CreateTable", **made(*[range(17)] * 6))
    assert "NonKeyAttributes over all indexes of a table, 102, exceeds" in refused
    db("CreateTable", **made(*[range(20)] * 5))


def test_the_time_to_live_attribute_has_a_name_of_1_to_255_characters(db, table):
    for name, least in (("t" * 256, None), ("", 1)):
        wanted = {"AttributeName": name, "Enabled": True}
        refused = db.invalid("UpdateTimeToLive", TableName=table, TimeToLiveSpecification=wanted)
        assert refused == too_long(name, "timeToLiveSpecification.attributeName", least)
    wanted = {"AttributeName": "t" * 255, "Enabled": True}
    db("UpdateTimeToLive", TableName=table, TimeToLiveSpecification=wanted)


@pytest.mark.parametrize("wrong", ["🔑", "100%", "a,b", "it's", "(x)", "a&b", "a*b", "<a>", "~a"])
def test_a_tag_has_letters_digits_spaces_and_a_few_signs(db, build, wrong):
    key = f"The Tag Key provided is invalid, Key: {wrong}"
    value = f"The Tag Value provided is invalid, Value: {wrong}"
    for tag, message in (
        ({"Key": wrong, "Value": "v"}, key),
        ({"Key": "k", "Value": wrong}, value),
    ):
        assert db.invalid("CreateTable", **definition(build, Tags=[tag])) == message
    db("CreateTable", **definition(build))
    arn = db("DescribeTable", TableName="made")["Table"]["TableArn"]
    refused = db.invalid("TagResource", ResourceArn=arn, Tags=[{"Key": wrong, "Value": "v"}])
    assert refused == key
    assert db.invalid("UntagResource", ResourceArn=arn, TagKeys=[wrong]) == key


def test_a_tag_is_in_any_script(db, build):
    tags = [
        {"Key": "ключ", "Value": "表 \u3000"},
        {"Key": "a+b-c=d.e_f:g/h@i", "Value": ""},
    ]
    db("CreateTable", **definition(build, Tags=tags))
    arn = db("DescribeTable", TableName="made")["Table"]["TableArn"]
    assert db("ListTagsOfResource", ResourceArn=arn)["Tags"] == tags


# -- where a query and an iterator begin -----------------------------------------------------------


def ask(condition, start, *, table="table", **more):
    values = {":pk": {"S": "a"}, ":sk": {"S": "5"}}
    return {
        "TableName": table,
        "KeyConditionExpression": condition,
        "ExpressionAttributeValues": {k: v for k, v in values.items() if k in condition},
        "ExclusiveStartKey": start,
    } | more


OUTSIDE = "The provided starting key is outside query boundaries based on provided conditions"
ONE_ROW = "The query can return at most one row and cannot be restarted"
NOT_IN_RANGE = "The provided starting key does not match the range key predicate"


@pytest.mark.parametrize(
    ("condition", "start", "more", "message"),
    [
        ("pk = :pk", {"pk": {"S": "b"}, "sk": {"S": "1"}}, {}, OUTSIDE),
        ("pk = :pk AND sk > :sk", {"pk": {"S": "a"}, "sk": {"S": "1"}}, {}, NOT_IN_RANGE),
        ("pk = :pk AND sk > :sk", {"pk": {"S": "b"}, "sk": {"S": "1"}}, {}, NOT_IN_RANGE),
        ("pk = :pk AND sk > :sk", {"pk": {"S": "b"}, "sk": {"S": "6"}}, {}, ONE_ROW),
        ("pk = :pk AND sk = :sk", {"pk": {"S": "a"}, "sk": {"S": "5"}}, {}, ONE_ROW),
        ("g = :pk", KEY | {"g": {"S": "b"}, "r": {"S": "1"}}, {"IndexName": "global"}, OUTSIDE),
        ("g = :pk", KEY, {"IndexName": "global"}, "The provided starting key is invalid"),
        ("pk = :pk", {"pk": {"S": "a"}}, {}, "The provided starting key is invalid"),
        (
            "pk = :pk",
            {"pk": {"S": "a"}, "sk": {"N": "1"}},
            {},
            (
                "The provided starting key is invalid: The provided key element does not match the "
                "schema"
            ),
        ),
    ],
)
def test_a_query_goes_on_where_a_page_of_it_can_have_ended(
    db, table, condition, start, more, message
):
    assert db.invalid("Query", **ask(condition, start, **more)) == message


def test_a_query_of_a_table_without_a_sort_key_cannot_be_restarted(db, build):
    db.table("hashed", "pk:S", GlobalSecondaryIndexes=[build.gsi("idx", "g")])
    here, there = {"pk": {"S": "a"}}, {"pk": {"S": "b"}}
    assert db.invalid("Query", **ask("pk = :pk", here, table="hashed")) == ONE_ROW
    assert db.invalid("Query", **ask("pk = :pk", there, table="hashed")) == OUTSIDE
    assert db.invalid("Query", **ask("pk = :pk", here | {"x": ONE}, table="hashed")) == (
        "The provided starting key is invalid"
    )
    for name in "abc":
        db("PutItem", TableName="hashed", Item=build.item(pk=name, g="a"))
    restarted = [
        db("Query", **ask("g = :pk", item, table="hashed", IndexName="idx"))["Count"]
        for item in db.everything("hashed")
    ]
    assert sorted(restarted) == [0, 1, 2]


@pytest.fixture
def streamed(db):
    db.table("streamed", StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})
    stream = db.engine.tables["streamed"].stream
    return {"StreamArn": stream.arn}, stream.shards()[0]


def stream_refusal(db, operation, payload):
    status, body = db.engine.call("dynamodbstreams", operation, payload)
    assert status == 400, body
    assert body["__type"].endswith("#ValidationException")
    return body["message"]


@pytest.mark.parametrize("kind", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
def test_only_an_iterator_at_a_sequence_number_has_one(db, streamed, kind):
    arn, shard = streamed
    request = arn | {"ShardId": shard.id, "ShardIteratorType": kind}
    refused = stream_refusal(
        db, "GetShardIterator", request | {"SequenceNumber": str(shard.start), "Timestamp": None}
    )
    assert refused == f"SequenceNumber must not be specified for ShardIteratorType {kind}"


def test_only_an_iterator_at_a_time_has_a_time(db, streamed):
    arn, shard = streamed
    request = arn | {"ShardId": shard.id, "ShardIteratorType": "LATEST", "Timestamp": db.now}
    assert stream_refusal(db, "GetShardIterator", request).startswith("Timestamp must not be")


SHORT = "failed to satisfy constraint: Member must have length greater than or equal to 28"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Type must be specified in a ShardFilter"),
        ({"ShardId": "shardId-00000001700000000000-aaaaaaaa"}, "Type must be specified"),
        ({"Type": "CHILD_SHARDS"}, "ShardId must be specified in a ShardFilter"),
        (
            {"Type": "PARENTS", "ShardId": "shardId-00000001700000000000-aaaaaaaa"},
            (
                "1 validation error detected: Value 'PARENTS' at 'shardFilter.type' failed to satisfy "
                "constraint: Member must satisfy enum value set: [CHILD_SHARDS]"
            ),
        ),
        (
            {"Type": "CHILD_SHARDS", "ShardId": "short"},
            f"1 validation error detected: Value 'short' at 'shardFilter.shardId' {SHORT}",
        ),
        (
            {"Type": "CHILD_SHARDS", "ShardId": ""},
            f"1 validation error detected: Value '' at 'shardFilter.shardId' {SHORT}",
        ),
    ],
)
def test_a_shard_filter_is_whole(db, streamed, given, message):
    arn, _ = streamed
    assert stream_refusal(db, "DescribeStream", arn | {"ShardFilter": given}).startswith(message)


def test_the_id_of_a_shard_has_28_to_65_characters(db, streamed):
    arn, _ = streamed
    request = arn | {"ShardIteratorType": "LATEST"}
    for shard_id in ("s" * 27, "s" * 66, ""):
        refused = stream_refusal(db, "GetShardIterator", request | {"ShardId": shard_id})
        assert f"Value '{shard_id}' at 'shardId' failed" in refused
        after = arn | {"ExclusiveStartShardId": shard_id}
        assert "at 'exclusiveStartShardId' failed" in stream_refusal(db, "DescribeStream", after)


# -- requests that cannot be read ------------------------------------------------------------------

DEEP = 200_000
"""Deeper than any version of Python lets a parser go: 3.13 reads 5,000, and then ListTables has no
fault to find."""


@pytest.mark.parametrize("operation", ["PutItem", "GetItem", "ListTables", "TransactWriteItems"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"TableName":"\xff"}',
        b'{"Item":{"\xc3\x28":{"S":"a"}}}',
        b'{"TableName":"\\ud800"}',
        b"\xff\xfe",
        b"{",
        b"[]",
        b"null",
        b'{"Limit":1e999}',
        b'{"Item":' + b'{"M":' * DEEP + b"{}" + b"}" * DEEP + b"}",
        b"[" * DEEP + b"]" * DEEP,
        b"[" * DEEP,
    ],
)
def test_a_body_that_cannot_be_read_is_the_caller_s_fault(db, operation, body):
    status, answer = db.engine.call_bytes("dynamodb", operation, body)
    assert status == 400
    assert b"#SerializationException" in answer or b"#ValidationException" in answer


def mistaken(payload, path=()):
    """The payload with each part of it replaced, in turn, by what does not belong there."""
    parts = payload.items() if isinstance(payload, dict) else enumerate(payload)
    for key, part in list(parts):
        for wrong in (None, 0, -1, 1.5, True, "", "\ud7ff", [], {}, [None], {"": None}, [[]]):
            changed = payload.copy()
            changed[key] = wrong
            yield changed
        if isinstance(part, dict | list):
            for deeper in mistaken(part):
                yield payload.copy() if isinstance(payload, list) else payload | {key: deeper}
                if isinstance(payload, list):
                    copy = payload.copy()
                    copy[key] = deeper
                    yield copy


REQUESTS = [
    ("PutItem", put(m={"M": {"l": {"L": [ONE, {"SS": ["a"]}]}}}) | {"ReturnValues": "ALL_OLD"}),
    ("PutItem", put() | {"Expected": {"a": {"Exists": False}}, "ConditionalOperator": "AND"}),
    ("GetItem", {"Key": KEY, "ProjectionExpression": "a", "ConsistentRead": True}),
    ("GetItem", {"Key": KEY, "AttributesToGet": ["a"], "ReturnConsumedCapacity": "TOTAL"}),
    (
        "UpdateItem",
        update("SET #n = :one", names={"#n": "a"}, one=ONE) | {"ConditionExpression": "#n < :one"},
    ),
    ("UpdateItem", {"Key": KEY, "AttributeUpdates": {"a": {"Action": "ADD", "Value": ONE}}}),
    ("DeleteItem", {"Key": KEY, "ReturnItemCollectionMetrics": "SIZE"}),
    (
        "Query",
        {
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": "a"}},
            "ExclusiveStartKey": KEY,
            "Limit": 1,
            "Select": "COUNT",
            "ScanIndexForward": False,
        },
    ),
    (
        "Query",
        {
            "KeyConditions": {
                "pk": {"ComparisonOperator": "EQ", "AttributeValueList": [{"S": "a"}]}
            },
            "QueryFilter": {"a": {"ComparisonOperator": "NOT_NULL"}},
            "IndexName": "local",
        },
    ),
    ("Scan", {"Segment": 0, "TotalSegments": 2, "ScanFilter": {}, "IndexName": "global"}),
    ("BatchGetItem", {"RequestItems": {"table": {"Keys": [KEY], "ConsistentRead": True}}}),
    (
        "BatchWriteItem",
        {"RequestItems": {"table": [{"PutRequest": put()}, {"DeleteRequest": {"Key": KEY}}]}},
    ),
    (
        "TransactWriteItems",
        {
            "TransactItems": [
                {"Put": put() | {"TableName": "table"}},
                {"Delete": {"Key": KEY, "TableName": "table"}},
            ],
            "ClientRequestToken": "token",
        },
    ),
    ("TransactGetItems", {"TransactItems": [{"Get": {"TableName": "table", "Key": KEY}}]}),
    (
        "CreateTable",
        {
            "TableName": "made",
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "idx",
                    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["a"]},
                    "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
                }
            ],
            "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
            "SSESpecification": {"Enabled": True},
            "OnDemandThroughput": {"MaxReadRequestUnits": 1},
            "TableClass": "STANDARD",
            "Tags": [{"Key": "a", "Value": "b"}],
        },
    ),
    (
        "UpdateTable",
        {
            "AttributeDefinitions": [{"AttributeName": "x", "AttributeType": "S"}],
            "GlobalSecondaryIndexUpdates": [
                {
                    "Create": {
                        "IndexName": "idx",
                        "KeySchema": [{"AttributeName": "x", "KeyType": "HASH"}],
                        "Projection": {"ProjectionType": "ALL"},
                    }
                }
            ],
        },
    ),
    ("UpdateTable", {"BillingMode": "PROVISIONED", "ProvisionedThroughput": {}}),
    ("UpdateTimeToLive", {"TimeToLiveSpecification": {"AttributeName": "t", "Enabled": True}}),
    ("ListTables", {"Limit": 1, "ExclusiveStartTableName": "a"}),
    (
        "TagResource",
        {
            "ResourceArn": "arn:aws:dynamodb:us-east-1:000000000000:table/table",
            "Tags": [{"Key": "a", "Value": "b"}],
        },
    ),
    (
        "UntagResource",
        {
            "ResourceArn": "arn:aws:dynamodb:us-east-1:000000000000:table/table",
            "TagKeys": ["a"],
        },
    ),
]


@pytest.mark.parametrize(("operation", "payload"), REQUESTS)
def test_no_mistake_in_a_request_is_a_defect_of_the_engine(db, table, operation, payload):
    for changed in mistaken({"TableName": table} | payload):
        status, body = db.engine.call("dynamodb", operation, copy.deepcopy(changed))
        assert status in (200, 400), (changed, body)
        db.engine.tables.pop("made", None)


# -- what AWS takes --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["x.y", "x[0]", "x.y[3].z", "x"])
def test_removing_a_path_of_an_item_that_is_not_there_does_nothing(db, table, path):
    assert db("UpdateItem", TableName=table, **update(f"REMOVE {path}")) == {}
    action = {"Update": update(f"REMOVE {path}, another.one") | {"TableName": table}}
    db("TransactWriteItems", TransactItems=[action])
    assert "Item" not in db("GetItem", TableName=table, Key=KEY)
    db("PutItem", TableName=table, Item=KEY)
    if path != "x":
        assert db.invalid("UpdateItem", TableName=table, **update(f"REMOVE {path}")) == (
            "The document path provided in the update expression is invalid for update"
        )


def test_a_set_may_have_an_empty_member(db, table):
    db("PutItem", TableName=table, **put(s={"SS": ["", "a"]}, b={"BS": ["", "YQ=="]}))
    db("UpdateItem", TableName=table, **update("DELETE s :a", a={"SS": ["a"]}))
    stored = db("GetItem", TableName=table, Key=KEY)["Item"]
    assert stored == KEY | {"s": {"SS": [""]}, "b": {"BS": ["", "YQ=="]}}
    db("UpdateItem", TableName=table, **update("DELETE s :a", a={"SS": [""]}))
    assert "s" not in db("GetItem", TableName=table, Key=KEY)["Item"]
