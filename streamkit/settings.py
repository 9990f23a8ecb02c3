"""Settings of a worker: argument > environment (`STREAMKIT_*`) > `[tool.streamkit]` > default.

Credentials, region and endpoints are the AWS SDK's own (`AWS_PROFILE`, `AWS_REGION`,
`AWS_ENDPOINT_URL_DYNAMODB`, …); there is no second way to set them.
"""

import os
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
)

from streamkit.pacing import Pace

_OTHER_VARIABLES = {"STREAMKIT_LOCAL_HOST", "STREAMKIT_LOCAL_PORT"}
"""Of the local engine, which is not a worker."""


class Settings(BaseSettings):
    """What can be set about a worker; durations are seconds."""

    model_config = SettingsConfigDict(
        env_prefix="STREAMKIT_",
        pyproject_toml_table_header=("tool", "streamkit"),
        extra="forbid",
        frozen=True,
    )

    app: str | None = Field(None, description="the app, as MODULE:NAME")
    heartbeat: float = Field(3.0, gt=0, description="between two heartbeats of a worker")
    lease: float = Field(7.0, gt=0, description="after which a silent worker's shards are taken")
    poll_floor: float = Field(0.2, ge=0, description="pause after a page with changes")
    poll_ceiling: float = Field(1.0, gt=0, description="longest pause on a quiet shard")
    checkpoint_interval: float = Field(
        60.0, gt=0, description="longest that a read position without effects stays unwritten"
    )
    list_interval: float = Field(30.0, gt=0, description="between two listings of the stream")
    concurrency: int = Field(64, gt=0, description="async handlers running at once")
    prefetch_bytes: int = Field(
        64_000_000, gt=0, description="pages held in memory, over all shards"
    )
    grace: float = Field(25.0, gt=0, description="for draining after SIGTERM")
    log_format: str = Field("auto", description="auto, console or json")
    log_level: str = Field("info", description="debug, info, warning or error")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings passes it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, then the environment, then the project's pyproject.toml."""
        return (init_settings, env_settings, PyprojectTomlConfigSettingsSource(settings_cls))

    @model_validator(mode="after")
    def _lease_outlives_heartbeats(self) -> Self:
        if self.lease < 2 * self.heartbeat:
            raise ValueError(
                f"lease ({self.lease:g} s) must be at least twice the heartbeat"
                f" ({self.heartbeat:g} s), or healthy workers take each other for dead"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_variable(cls, given: Any) -> Any:
        names = {f"STREAMKIT_{name.upper()}" for name in cls.model_fields} | _OTHER_VARIABLES
        unknown = sorted(n for n in os.environ if n.startswith("STREAMKIT_") and n not in names)
        if unknown:
            raise ValueError(f"no such setting: {', '.join(unknown)}")
        return given

    @property
    def pace(self) -> Pace:
        """The settings of polling."""
        return Pace(
            floor=self.poll_floor,
            ceiling=self.poll_ceiling,
            checkpoint=self.checkpoint_interval,
        )
