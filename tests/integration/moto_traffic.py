"""Random calls on the tables of a pair, valid ones for the most part."""

import random
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from tests.integration.moto_pair import Pair


class Traffic:
    """Random calls, valid ones for the most part."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.rng = random.Random(seed)

    def steps(self, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """That many calls."""
        makers = {
            self.put: 6,
            self.update: 6,
            self.delete: 3,
            self.get: 3,
            self.query: 5,
            self.scan: 2,
            self.batch_write: 2,
            self.batch_get: 2,
            self.transact_write: 5,
            self.transact_get: 1,
            self.wrong: 2,
        }
        for maker in self.rng.choices([*makers], [*makers.values()], k=count):
            yield maker()

    def table(self) -> str:
        return self.rng.choice([self.pair.hash_table, self.pair.range_table])

    def key(self, table: str) -> dict[str, Any]:
        key = {"pk": {"S": self.rng.choice("abc")}}
        if table == self.pair.range_table:
            key["sk"] = {"S": self.rng.choice("uvwxyz")}
        return key

    def targets(self, most: int) -> list[tuple[str, dict[str, Any]]]:
        """Some tables and keys, all different."""
        tables = [self.table() for _ in range(self.rng.randint(1, most))]
        found = [(table, self.key(table)) for table in tables]
        return [*{repr(target): target for target in found}.values()]

    def value(self, depth: int = 2) -> dict[str, Any]:
        rng = self.rng
        kind = rng.choice(["S", "N", "B", "BOOL", "NULL", "SS", "NS", "M", "L"])
        if kind == "S":
            return {"S": rng.choice(["", "x", "yé", "zz"])}
        if kind == "N":
            return {"N": str(rng.randint(-3, 9))}
        if kind == "B":
            return {"B": b64encode(rng.randbytes(3)).decode()}
        if kind == "BOOL":
            return {"BOOL": rng.random() < 0.5}
        if kind == "SS":
            return {"SS": rng.sample(["p", "q", "r"], rng.randint(1, 3))}
        if kind == "NS":
            return {"NS": rng.sample(["1", "2", "3"], rng.randint(1, 3))}
        if kind == "M" and depth:
            return {"M": {name: self.value(depth - 1) for name in rng.sample("efh", 2)}}
        if kind == "L" and depth:
            return {"L": [self.value(depth - 1) for _ in range(rng.randint(0, 2))]}
        return {"NULL": True}

    def item(self, table: str) -> dict[str, Any]:
        rng = self.rng
        item = self.key(table)
        if rng.random() < 0.6:
            item["g"] = {"S": rng.choice("GH")}
        if rng.random() < 0.6:
            item["n"] = {"N": str(rng.randint(-3, 9))}
        if rng.random() < 0.5:
            item["s"] = {"S": rng.choice(["s1", "s2", "t3"])}
        if rng.random() < 0.3:
            item["tags"] = {"SS": rng.sample(["p", "q", "r"], 2)}
        for name in rng.sample("efh", rng.randint(0, 2)):
            item[name] = self.value()
        return item

    def condition(self, kind: str = "ConditionExpression") -> dict[str, Any]:
        """Parameters of a condition that may or may not hold."""
        text, values = self.rng.choice(
            [
                ("attribute_exists(pk)", {}),
                ("attribute_not_exists(pk)", {}),
                ("attribute_not_exists(g) OR n > :n", {":n": {"N": "2"}}),
                ("n BETWEEN :n AND :m", {":n": {"N": "0"}, ":m": {"N": "5"}}),
                ("begins_with(s, :s)", {":s": {"S": "s"}}),
                ("NOT contains(tags, :p)", {":p": {"S": "p"}}),
                ("s IN (:s, :t)", {":s": {"S": "s1"}, ":t": {"S": "t3"}}),
                ("size(s) = :two AND n <> :n", {":two": {"N": "2"}, ":n": {"N": "1"}}),
                ("attribute_type(e, :type)", {":type": {"S": "M"}}),
                (
                    "(g = :g AND n >= :n) OR attribute_exists(e)",
                    {":g": {"S": "G"}, ":n": {"N": "3"}},
                ),
            ]
        )
        found: dict[str, Any] = {kind: text}
        if values:
            found["ExpressionAttributeValues"] = dict(values)
        return found

    def maybe_condition(self) -> dict[str, Any]:
        if self.rng.random() < 0.5:
            return {}
        asked = {"ReturnValuesOnConditionCheckFailure": self.rng.choice(["ALL_OLD", "NONE"])}
        return self.condition() | asked

    def put(self) -> tuple[str, dict[str, Any]]:
        table = self.table()
        wanted = {"ReturnValues": "ALL_OLD"} if self.rng.random() < 0.5 else {}
        return "PutItem", {
            "TableName": table,
            "Item": self.item(table),
            **self.maybe_condition(),
            **wanted,
        }

    def change(self) -> dict[str, Any]:
        """Parameters of an update, and of a condition."""
        number = {"N": str(self.rng.randint(-2, 5))}
        text, values = self.rng.choice(
            [
                ("SET n = :v", {":v": number}),
                ("SET n = if_not_exists(n, :v) + :v", {":v": number}),
                ("SET s = :s REMOVE e", {":s": {"S": "s9"}}),
                ("SET s = :s, g = :g", {":s": {"S": "s8"}, ":g": {"S": "H"}}),
                ("SET #e = list_append(if_not_exists(f, :none), :new)", {":none": {"L": []}, ":new": {"L": [number]}}),
                ("SET e = :m", {":m": {"M": {"x": number, "y": {"L": [number]}}}}),
                ("ADD n :v", {":v": number}),
                ("ADD tags :t SET s = :s", {":t": {"SS": ["q", "z"]}, ":s": {"S": "s7"}}),
                ("DELETE tags :t SET n = :v", {":t": {"SS": ["p", "q"]}, ":v": number}),
                ("SET s = :s REMOVE g, h, e.x", {":s": {"S": "t1"}}),
            ]
        )  # fmt: skip
        found: dict[str, Any] = {"UpdateExpression": text}
        if "#e" in text:
            found["ExpressionAttributeNames"] = {"#e": "e"}
        condition = self.maybe_condition()
        given = condition.pop("ExpressionAttributeValues", {})
        renamed = {name: f":c{name[1:]}" for name in given}
        for name, other in renamed.items():
            condition["ConditionExpression"] = condition["ConditionExpression"].replace(name, other)
        found["ExpressionAttributeValues"] = values | {
            other: given[name] for name, other in renamed.items()
        }
        return found | condition

    def update(self) -> tuple[str, dict[str, Any]]:
        table = self.table()
        wanted = self.rng.choice(["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_NEW", "UPDATED_OLD"])
        return "UpdateItem", {
            "TableName": table,
            "Key": self.key(table),
            **self.change(),
            "ReturnValues": wanted,
        }

    def delete(self) -> tuple[str, dict[str, Any]]:
        table = self.table()
        key = self.key(table)
        return "DeleteItem", {
            "TableName": table,
            "Key": key,
            **self.maybe_condition(),
            "ReturnValues": "ALL_OLD",
        }

    def projection(self) -> dict[str, Any]:
        return self.rng.choice(
            [
                {},
                {"ProjectionExpression": "pk, s, e"},
                {"ProjectionExpression": "#n, e.x", "ExpressionAttributeNames": {"#n": "n"}},
            ]
        )

    def get(self) -> tuple[str, dict[str, Any]]:
        table = self.table()
        return "GetItem", {"TableName": table, "Key": self.key(table), **self.projection()}

    def query(self) -> tuple[str, dict[str, Any]]:
        rng = self.rng
        values: dict[str, Any] = {":k": {"S": rng.choice("abc")}}
        request: dict[str, Any] = {"TableName": self.pair.range_table}
        text = "pk = :k"
        if rng.random() < 0.4:
            # Equal index keys have no order, so the range key is in this one.
            request |= {"IndexName": "all", "TableName": self.table()}
            text, values = "g = :k", {":k": {"S": rng.choice("GH")}}
            if rng.random() < 0.6:
                text += rng.choice([" AND n > :n", " AND n = :n", " AND n <= :n"])
                values[":n"] = {"N": str(rng.randint(-3, 9))}
        elif rng.random() < 0.7:
            text += rng.choice(
                [" AND sk >= :s", " AND sk < :s", " AND sk = :s", " AND begins_with(sk, :s)"]
            )
            values[":s"] = {"S": rng.choice("uvwxyz")}
        request |= {"KeyConditionExpression": text, "ExpressionAttributeValues": values}
        if rng.random() < 0.3:
            request["FilterExpression"] = "attribute_exists(s)"
        if rng.random() < 0.3:
            request["ScanIndexForward"] = False
        if "IndexName" not in request and rng.random() < 0.4:
            request["Limit"] = rng.randint(1, 4)
        return "Query", request

    def scan(self) -> tuple[str, dict[str, Any]]:
        request = {"TableName": self.table(), **self.condition("FilterExpression")}
        if self.rng.random() < 0.5:
            request["IndexName"] = self.rng.choice(["all", "keys"])
        return "Scan", request

    def batch_write(self) -> tuple[str, dict[str, Any]]:
        requests: dict[str, Any] = {}
        for table, key in self.targets(5):
            action = {"PutRequest": {"Item": self.item(table) | key}}
            if self.rng.random() < 0.3:
                action = {"DeleteRequest": {"Key": key}}
            requests.setdefault(table, []).append(action)
        return "BatchWriteItem", {"RequestItems": requests}

    def batch_get(self) -> tuple[str, dict[str, Any]]:
        requests: dict[str, Any] = {}
        for table, key in self.targets(6):
            requests.setdefault(table, {"Keys": []})["Keys"].append(key)
        return "BatchGetItem", {"RequestItems": requests}

    def transact_write(self) -> tuple[str, dict[str, Any]]:
        actions = []
        for table, key in self.targets(4):
            kind = self.rng.choice(["Put", "Update", "Delete", "ConditionCheck"])
            request: dict[str, Any] = {"TableName": table}
            if kind == "Put":
                request |= {"Item": self.item(table) | key, **self.maybe_condition()}
            else:
                request["Key"] = key
            if kind == "Update":
                request |= self.change()
            elif kind == "Delete":
                request |= self.maybe_condition()
            elif kind == "ConditionCheck":
                request |= self.condition()
            actions.append({kind: request})
        return "TransactWriteItems", {"TransactItems": actions}

    def transact_get(self) -> tuple[str, dict[str, Any]]:
        gets = [{"Get": {"TableName": table, "Key": key}} for table, key in self.targets(4)]
        return "TransactGetItems", {"TransactItems": gets}

    def wrong(self) -> tuple[str, dict[str, Any]]:
        """A request that is refused for what it is."""
        table = self.pair.hash_table
        key = {"pk": {"S": "a"}}
        none = f"{table}-none"
        return self.rng.choice(
            [
                ("GetItem", {"TableName": none, "Key": key}),
                ("GetItem", {"TableName": table, "Key": key | {"sk": {"S": "b"}}}),
                ("GetItem", {"TableName": self.pair.range_table, "Key": key}),
                ("PutItem", {"TableName": none, "Item": key}),
                ("PutItem", {"TableName": table, "Item": {"x": {"S": "y"}}}),
                ("PutItem", {"TableName": table, "Item": {"pk": {"S": ""}}}),
                ("PutItem", {"TableName": table, "Item": key | {"x": {"SS": []}}}),
                ("UpdateItem", {"TableName": table, "Key": key, "UpdateExpression": "SET n ="}),
                ("UpdateItem", {"TableName": table, "Key": key, "UpdateExpression": "SET pk = s"}),
                ("DeleteItem", {"TableName": none, "Key": key}),
                ("Query", {"TableName": table}),
                ("Query", {"TableName": none, "KeyConditionExpression": "pk = pk"}),
                ("Scan", {"TableName": none}),
                ("BatchWriteItem", {"RequestItems": {table: [{"DeleteRequest": {"Key": key}}] * 2}}),
                ("BatchGetItem", {"RequestItems": {table: {"Keys": [key, key]}}}),
                ("TransactWriteItems", {"TransactItems": [{"Delete": {"TableName": table, "Key": key}}] * 2}),
                ("TransactWriteItems", {"TransactItems": []}),
            ]
        )  # fmt: skip
