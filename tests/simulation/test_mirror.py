"""Mirrors: copies end with the latest state of their source, whatever the interleaving."""

import random
from typing import ClassVar

import pytest

from streamkit import Add, App, Entity, Index, Key, Put, Query, Set
from streamkit.errors import PoisonChange
from streamkit.testing import every_crash
from tests.rigs import Rig


class User(Entity, pk="USER#{user}", sk="USER#{user}"):
    user: str
    name: str


class Member(Entity, pk="SERVER#{server}", sk="USER#{user}"):
    server: str
    user: str
    name: str = ""
    role: str = ""
    seen: int = 0

    by_user: ClassVar = Index("GSI1", pk="USER#{user}", sk="SERVER#{server}")


def members_of(user: User) -> Query[Member]:
    return Member.query(index=Member.by_user, user=user.user)


def user_of(member: Member) -> Key[User]:
    return User.key(user=member.user)


def make_app(gone="keep"):
    app = App("chat", table="Chat")

    @app.mirror(copies=members_of, source=user_of, gone=gone)
    def copy_name(user: User, copy: Member) -> Set[Member]:
        return Set(copy.item_key, name=user.name)

    return app


def wrong(harness):
    users = {user.user: user.name for user in harness.scan(User)}
    return [
        (member.user, member.name)
        for member in harness.scan(Member)
        if member.user in users and member.name != users[member.user]
    ]


def test_a_renamed_source_renames_its_copies(harness_of):
    harness = harness_of(make_app())
    harness.put(User(user="ann", name="Ann"))
    harness.put(*(Member(server=f"s{n}", user="ann") for n in range(70)))
    harness.settle()
    assert not wrong(harness)
    harness.put(User(user="ann", name="Anna"))
    harness.settle()
    assert not wrong(harness)
    assert not harness.parked()


def test_a_copy_made_from_an_old_reading_mends_itself(harness_of):
    harness = harness_of(make_app())
    harness.put(User(user="ann", name="New"))
    harness.settle()
    harness.put(Member(server="s1", user="ann", name="Old"))
    harness.settle()
    assert not wrong(harness)


def test_a_copy_that_is_set_back_mends_itself(harness_of):
    harness = harness_of(make_app())
    harness.put(User(user="ann", name="New"), *(Member(server=f"s{n}", user="ann") for n in "ab"))
    harness.settle()
    harness.put(Member(server="sa", user="ann", name="Old"))
    harness.settle()
    assert not wrong(harness)


class Author(Entity, pk="AUTHOR#{user}", sk="AUTHOR"):
    user: str
    name: str


class Post(Entity, pk="AUTHOR#{user}", sk="POST#{post}"):
    user: str
    post: str
    name: str = ""


def posts_of(author: Author) -> Query[Post]:
    return Post.query(user=author.user)


def author_of(post: Post) -> Key[Author]:
    return Author.key(user=post.user)


@pytest.mark.parametrize(("gone", "left"), [("keep", 1), ("delete", 0)])
def test_a_copy_that_appears_after_its_source_is_gone_is_kept_or_deleted(harness_of, gone, left):
    app = App("blog", table="Blog")

    @app.mirror(copies=posts_of, source=author_of, gone=gone)
    def name(author: Author, copy: Post) -> Set[Post]:
        return Set(copy.item_key, name=author.name)

    harness = harness_of(app)
    harness.put(Post(user="ann", post="1"))
    harness.settle()
    assert len(harness.scan(Post)) == left


def test_other_attributes_of_a_copy_stay(harness_of):
    harness = harness_of(make_app())
    harness.put(User(user="ann", name="Ann"))
    harness.put(Member(server="s1", user="ann", name="x", role="admin"))
    harness.settle()
    assert harness.get(Member.key(server="s1", user="ann")).role == "admin"


@pytest.mark.parametrize(("gone", "left"), [("keep", 3), ("delete", 0)])
def test_the_copies_of_a_source_that_is_gone_are_kept_or_deleted(harness_of, gone, left):
    harness = harness_of(make_app(gone))
    harness.put(User(user="ann", name="Ann"))
    harness.put(*(Member(server=f"s{n}", user="ann") for n in range(3)))
    harness.settle()
    harness.delete(User.key(user="ann"))
    harness.settle()
    assert len(harness.scan(Member)) == left


def test_a_mirror_that_changes_its_own_result_is_parked(harness_of):
    app = App("chat", table="Chat")

    @app.mirror(copies=members_of, source=user_of)
    def grow(user: User, copy: Member) -> Set[Member]:
        return Set(copy.item_key, name=copy.name + user.name)

    harness = harness_of(app)
    harness.put(User(user="ann", name="Ann"), Member(server="s", user="ann", name="x"))
    harness.settle()
    assert {parked.error for parked in harness.parked()} == {PoisonChange.__name__}
    assert harness.get(Member.key(server="s", user="ann")).name == "x"


def test_a_mirror_that_adds_is_parked_and_does_not_go_round_in_circles(harness_of):
    app = App("chat", table="Chat")

    @app.mirror(copies=members_of, source=user_of)
    def count(user: User, copy: Member) -> Add[Member]:
        return Add(copy.item_key, seen=1)

    harness = harness_of(app)
    harness.put(User(user="ann", name="Ann"), Member(server="s", user="ann"))
    harness.settle()
    assert {parked.error for parked in harness.parked()} == {PoisonChange.__name__}
    assert harness.get(Member.key(server="s", user="ann")).seen == 0


def test_a_mirror_may_put_the_whole_copy_and_ends(harness_of):
    app = App("chat", table="Chat")

    @app.mirror(copies=members_of, source=user_of)
    def whole(user: User, copy: Member) -> Put[Member]:
        return Put(Member(server=copy.server, user=copy.user, name=user.name))

    harness = harness_of(app)
    harness.put(User(user="ann", name="Ann"), Member(server="s", user="ann", name="x"))
    harness.settle()
    calls = harness.calls
    assert harness.get(Member.key(server="s", user="ann")).name == "Ann"
    harness.put(Member(server="s", user="ann", name="x"))
    harness.settle()
    assert not wrong(harness)
    assert not harness.parked()
    assert harness.calls - calls < 40


def chaos(harness, seed):
    """Renames, copies made of old names, deletions and moves, with the worker running between."""
    rng = random.Random(seed)
    for step in range(40):
        user = rng.choice("ab")
        kind = rng.randrange(5)
        if kind < 2:
            harness.put(User(user=user, name=f"{user}{step}"))
        elif kind == 2:
            harness.delete(Member.key(server=f"s{rng.randrange(3)}", user=user))
        else:
            harness.put(Member(server=f"s{rng.randrange(3)}", user=user, name=f"old{step}"))
        harness.advance(rng.choice([0, 0, 0.1, 0.5]))
    harness.settle()


@pytest.mark.parametrize("seed", range(6))
def test_renames_racing_with_copies_converge(harness_of, seed):
    harness = harness_of(make_app(), seed=seed)
    chaos(harness, seed)
    assert not wrong(harness)


def rename_twice(harness):
    harness.put(User(user="a", name="1"), Member(server="s", user="a", name="0"))
    harness.put(User(user="a", name="2"))
    harness.settle()
    assert not wrong(harness)


def test_a_worker_killed_at_any_call_leaves_no_copy_behind():
    for _ in every_crash(rename_twice, lambda: Rig(make_app()), sample=6):
        pass
