"""An aggregate that another consumer counts, or has counted, is not counted again in silence."""

from typing import Annotated

import pytest
from botocore.exceptions import ClientError
from structlog.testing import capture_logs

from streamkit import Aggregate, App, Count, Entity, Inserted, Put
from streamkit.errors import ConfigurationError
from streamkit.fleet import founding
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.inspection import inspect_app
from streamkit.operate.status import read_status


class Like(Entity, pk="POST#{post}", sk="LIKE#{user}"):
    post: str
    user: str


class Mark(Entity, pk="MARK#{user}", sk="MARK"):
    user: str


class PostLikes(Aggregate[Like], pk="POST#{post}", sk="LIKES"):
    post: str
    likes: Annotated[int, Count()] = 0


class Likers(Aggregate[Like], pk="LIKER#{user}", sk="LIKES"):
    user: str
    likes: Annotated[int, Count()] = 0


def app_of(name, *aggregates, listener=None, **options):
    """An app that counts likes itself, or in a listener of that name."""
    app = App(name, table="Likes", entities=[Like], **options)

    @app.on
    def mark(change: Inserted[Like]) -> Put[Mark]:
        return Put(Mark(user=change.new.user))

    for one in aggregates:
        (app if listener is None else app.listener(listener)).aggregate(one)
    return app


def deploy(harness, app):
    harness.stop()
    harness.app = app
    harness.settle()


def like(harness, *users):
    harness.put(*(Like(post="1", user=user) for user in users))
    harness.settle()


def likes(harness):
    return harness.get(PostLikes.key(post="1")).likes


def needs_rebuild(harness, app):
    clock = harness.world.clock
    return harness.operate(lambda aws: read_status(app, aws, clock=clock)).needs_rebuild


def errors(harness, app):
    found = harness.operate(lambda aws: inspect_app(app, aws))
    return [finding.text for finding in found.findings if finding.severity == "error"]


def rebuild(harness, app):
    harness.operate(lambda aws: rebuild_aggregate(app, aws, "PostLikes"))
    harness.settle()


def test_an_app_under_another_name_does_not_count_again_what_the_old_one_has(harness_of):
    """It would begin at the oldest record, and add a day of likes a second time."""
    harness = harness_of(app_of("likes", PostLikes))
    like(harness, "ann", "bob")
    renamed = app_of("hearts", PostLikes)
    said = r"PostLikes.*the app 'likes' counts it.*keep the app's name.*consumers delete likes"
    (text,) = errors(harness, renamed)
    with pytest.raises(ConfigurationError, match=said) as refused:
        deploy(harness, renamed)
    assert str(refused.value) in text
    assert likes(harness) == 2

    harness.stop()
    clock = harness.world.clock
    harness.operate(lambda aws: delete_consumer(aws, "Likes", "likes", clock=clock))
    deploy(harness, renamed)
    rebuild(harness, renamed)
    like(harness, "cid")
    assert likes(harness) == 3


def test_an_app_that_begins_to_count_what_another_one_counts_is_refused(harness_of):
    harness = harness_of(app_of("likes", PostLikes))
    like(harness, "ann")
    deploy(harness, app_of("hearts", Likers))
    with pytest.raises(ConfigurationError, match=r"PostLikes.*the app 'likes' counts it"):
        deploy(harness, app_of("hearts", Likers, PostLikes))
    deploy(harness, app_of("likes"))
    moved = app_of("hearts", Likers, PostLikes)
    deploy(harness, moved)
    assert needs_rebuild(harness, moved) == ("PostLikes",)


def test_an_aggregate_that_moves_into_a_listener_needs_a_rebuild(harness_of):
    """The listener reads a day of likes that the app has counted; a rebuild makes it right."""
    harness = harness_of(app_of("likes", PostLikes))
    like(harness, "ann", "bob")
    moved = app_of("likes", PostLikes, listener="counts")
    deploy(harness, moved)
    counts = moved.listeners["counts"]
    assert needs_rebuild(harness, counts) == ("PostLikes",)
    rebuild(harness, counts)
    assert needs_rebuild(harness, counts) == ()
    like(harness, "cid")
    assert likes(harness) == 3


def test_it_needs_one_too_if_the_app_forgot_it_versions_before(harness_of):
    harness = harness_of(app_of("likes", PostLikes))
    like(harness, "ann")
    deploy(harness, app_of("likes", Likers))
    deploy(harness, app_of("likes"))
    moved = app_of("likes", PostLikes, listener="counts")
    deploy(harness, moved)
    assert needs_rebuild(harness, moved.listeners["counts"]) == ("PostLikes",)


def test_apps_with_aggregates_of_their_own_begin_on_one_table(harness_of):
    harness = harness_of(app_of("likes", PostLikes))
    like(harness, "ann")
    other = app_of("hearts", Likers)
    deploy(harness, other)
    assert errors(harness, other) == []
    assert needs_rebuild(harness, other) == ()
    assert harness.get(Likers.key(user="ann")).likes == 1


def test_an_app_begins_although_its_policy_allows_no_look_at_another_and_says_so(
    harness_of, monkeypatch
):
    harness = harness_of(app_of("likes", PostLikes))
    like(harness, "ann")

    async def refused(store):
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetItem")

    monkeypatch.setattr(founding, "newest_generation", refused)
    with capture_logs() as logs:
        deploy(harness, app_of("hearts", PostLikes))
    (said,) = [one for one in logs if one["event"] == "consumer.not_seen"]
    assert (said["consumer"], said["error"]) == ("likes", "AccessDeniedException")


def test_an_outage_of_the_look_ends_the_start(harness_of, monkeypatch):
    """What was not looked at is not taken for right; the supervisor starts the process again."""
    harness = harness_of(app_of("likes", PostLikes))
    like(harness, "ann")

    async def failing(store):
        raise ClientError({"Error": {"Code": "ValidationException"}}, "GetItem")

    monkeypatch.setattr(founding, "newest_generation", failing)
    with pytest.raises(ClientError):
        deploy(harness, app_of("hearts", PostLikes))


def test_an_app_that_gets_a_control_table_does_not_begin_anew_in_it(harness_of):
    """Its positions and parked changes are in the table itself, where nobody would look again."""
    harness = harness_of(app_of("likes", PostLikes, tables=["Control"]))
    like(harness, "ann")
    apart = app_of("likes", PostLikes, control_table="Control")
    said = "parked changes of likes are in table Likes itself.*leave that out.*consumers delete"
    (text,) = errors(harness, apart)
    with pytest.raises(ConfigurationError, match=said) as refused:
        deploy(harness, apart)
    assert str(refused.value) in text
    harness.stop()
    clock = harness.world.clock
    harness.operate(lambda aws: delete_consumer(aws, "Likes", "likes", clock=clock))
    deploy(harness, apart)
    assert errors(harness, apart) == []
