"""The click counter out of the profile: a click then writes one small item, not the whole user."""

from handlers.chat.entities import User, UserStats
from handlers.chat.handlers import app
from streamkit import Remove, Set


def in_profile(user: User, parts: list[UserStats]) -> Set[User]:  # noqa: ARG001 - as it is given
    """Keep the count in the profile, too."""
    return Set(click=parts[0].click if parts else 0)


@app.migration(
    "0001",
    User,
    mode="split",
    reverse=in_profile,
    collect=lambda user: UserStats.query(user_id=user.user_id),
    source=lambda part: User.key(user_id=part.user_id),
)
def clicks(user_id: str, click: int | None = None) -> list[UserStats | Remove[User]]:
    """Count in an item of its own."""
    if click is None:
        return []
    return [UserStats(user_id=user_id, click=click), Remove("click")]
