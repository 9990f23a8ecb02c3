"""A mirror over an index, on a table where its copies share one place in the directory."""

from typing import ClassVar

import pytest

from streamkit import App, Entity, Index, Set
from streamkit.core.tables import AppTables
from streamkit.kinds.finding import Finding
from streamkit.kinds.preflight import findings
from streamkit.model.schema import IndexSchema, TableSchema


class User(Entity, pk="USER#{user}"):
    user: str
    name: str


class Membership(Entity, pk="MEMBERSHIP#{group}#{user}"):
    by_user: ClassVar = Index("GSI1", pk="USER#{user}")
    group: str
    user: str
    name: str = ""


class Badge(Entity, pk="BADGE#{user}"):
    user: str
    name: str = ""


def schema(sk: str | None) -> TableSchema:
    gsi = IndexSchema("GSI1", (("GSI1PK", "S"),), (), "ALL", frozenset(), is_global=True)
    arn = "arn:aws:dynamodb:::table/t/stream/2024"
    return TableSchema("t", "PK", sk, "S", sk and "S", {"GSI1": gsi}, stream_arn=arn)


def found(app: App, sk: str | None) -> list[Finding]:
    described = schema(sk)
    return [f for f in findings(app, AppTables(described, described)) if "directory" in f.text]


def memberships() -> App:
    app = App("shop", table="t")

    @app.mirror(
        copies=lambda user: Membership.query(index=Membership.by_user, user=user.user),
        source=lambda copy: User.key(user=copy.user),
    )
    def copy_name(user: User, copy: Membership) -> Set[Membership]:
        return Set(copy.item_key, name=user.name)

    return app


def test_a_mirror_over_an_index_of_a_table_without_sort_key_is_warned_of_once() -> None:
    (finding,) = found(memberships(), None)
    assert finding.severity == "warning"
    assert "copy_name" in finding.text
    assert "Membership" in finding.text
    assert "table with a sort key" in finding.text


def test_a_mirror_over_an_index_of_a_table_with_a_sort_key_is_not_warned_of() -> None:
    assert found(memberships(), "SK") == []


@pytest.mark.parametrize("sk", [None, "SK"])
def test_a_mirror_whose_copies_are_in_no_index_is_not_warned_of(sk: str | None) -> None:
    app = App("shop", table="t")

    @app.mirror(
        copies=lambda user: Badge.query(user=user.user),
        source=lambda copy: User.key(user=copy.user),
    )
    def copy_name(user: User, copy: Badge) -> Set[Badge]:
        return Set(copy.item_key, name=user.name)

    assert found(app, sk) == []
