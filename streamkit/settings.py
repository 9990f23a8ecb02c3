"""Settings of a worker: argument > `STREAMKIT_*` variable > `[tool.streamkit]` > preset > default.

A preset changes the defaults of how often a worker asks, which determines its cost; a setting given
by itself wins over it. Workers of different presets may share a fleet: each is judged by the lease
that it reports with its heartbeats.

Credentials, region and endpoints are the AWS SDK's own (`AWS_PROFILE`, `AWS_REGION`,
`AWS_ENDPOINT_URL_DYNAMODB`, …); there is no second way to set them.
"""

import os
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
)

from streamkit.progress.pacing import Pace

PORT_MAX = 65535
_OTHER_VARIABLES = {"STREAMKIT_LOCAL_HOST", "STREAMKIT_LOCAL_PORT"}
"""Variables of the local engine, which is not a worker."""

Preset = Literal["balanced", "latency", "cost"]
"""The names of presets; `balanced` is the defaults as they are."""

PRESETS: dict[Preset, dict[str, float]] = {
    "balanced": {},
    "latency": {
        "poll_floor": 0.2,
        "poll_ceiling": 0.25,
        "look_interval": 0.25,
        "heartbeat": 1.5,
        "lease": 3.25,
    },
    "cost": {
        "poll_floor": 1.0,
        "poll_ceiling": 10.0,
        "look_interval": 2.0,
        "checkpoint_interval": 300.0,
        "list_interval": 60.0,
        "heartbeat": 3.0,
        "lease": 7.0,
    },
}
"""The settings of each preset. Lambda makes four reads a second of a shard; users report that the
service allows five."""


class _PresetSource(PydanticBaseSettingsSource):
    """Reads what the chosen preset sets; any source may name the preset."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - the interface
        """Return one setting; the base class wants it."""
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all of them; an unknown preset is refused by the field's own validation."""
        values: dict[str, Any] = dict(PRESETS.get(self.current_state.get("preset", "balanced"), {}))
        return values


class Settings(BaseSettings):
    """What can be set about a worker; durations are seconds."""

    model_config = SettingsConfigDict(
        allow_inf_nan=False,
        env_prefix="STREAMKIT_",
        pyproject_toml_table_header=("tool", "streamkit"),
        extra="forbid",
        frozen=True,
    )

    app: str | None = Field(None, description="The app, as MODULE:NAME.")
    preset: Preset = Field(
        "balanced",
        description="Use these defaults: balanced, latency (poll often) or cost (poll seldom).",
    )
    heartbeat: float = Field(2.0, gt=0, description="Seconds between two heartbeats of a worker.")
    lease: float = Field(
        4.25, gt=0, description="Seconds after which other workers take a silent worker's shards."
    )
    look_interval: float = Field(
        0.5, gt=0, description="Seconds between two looks at the other workers of the fleet."
    )
    take_over_after: float = Field(
        30.0,
        ge=0,
        description="Seconds without a worker of the newest version until an older one takes over.",
    )
    take_over: bool = Field(False, description="Take over at once, although this version is older.")
    weight: int = Field(
        1,
        gt=0,
        le=1000,
        description="This worker's share of the shards; 2 gets twice as many as 1.",
    )
    poll_floor: float = Field(0.2, ge=0, description="Seconds of pause after a page with changes.")
    poll_ceiling: float = Field(
        1.0, gt=0, description="Seconds of the longest pause on a quiet shard."
    )
    checkpoint_interval: float = Field(
        60.0, gt=0, description="Seconds for which a position without effects may stay unwritten."
    )
    list_interval: float = Field(
        30.0, gt=0, description="Seconds between two listings of the stream."
    )
    readers: int = Field(32, gt=0, description="Poll at most this many shards at the same moment.")
    concurrency: int = Field(64, gt=0, description="Run at most this many async handlers at once.")
    prefetch_bytes: int = Field(
        64_000_000,
        gt=0,
        description="Hold at most this many bytes of pages in memory, over all shards.",
    )
    catch_up_wcu: float | None = Field(
        None,
        gt=0,
        description="Use at most this many write units a second for handlers that catch up from"
        " their start=.",
    )
    grace: float = Field(25.0, gt=0, description="Seconds to drain after SIGTERM.")
    health: str | None = Field(
        None, description="Serve /livez, /readyz, /metrics and a status page at this HOST:PORT."
    )
    health_token: str | None = Field(
        None,
        min_length=16,
        repr=False,
        description="Ask for this token before the status page is shown, and allow actions on it.",
    )
    ready_lag: float = Field(
        3600.0, ge=0, description="Seconds of lag above which /readyz fails; 0 allows any lag."
    )
    log_format: str = Field(
        "auto", description="Log as console or json; auto chooses console on a terminal."
    )
    log_level: str = Field(
        "info", description="Log this level and above: debug, info, warning or error."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings passes it
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, the environment, the project's pyproject.toml, then the preset."""
        file = PyprojectTomlConfigSettingsSource(settings_cls)
        return (init_settings, env_settings, file, _PresetSource(settings_cls))

    @model_validator(mode="after")
    def _lease_outlives_heartbeats(self) -> Self:
        if self.lease < 2 * self.heartbeat:
            raise ValueError(
                f"lease ({self.lease:g} s) must be at least twice the heartbeat"
                f" ({self.heartbeat:g} s), or healthy workers take each other for dead"
            )
        return self

    @field_validator("health")
    @classmethod
    def _is_an_address(cls, given: str | None) -> str | None:
        if given is not None:
            read_address(given)
        return given

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
        """Return the settings of polling."""
        return Pace(
            floor=self.poll_floor,
            ceiling=self.poll_ceiling,
            checkpoint=self.checkpoint_interval,
        )


def read_address(text: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 address is in brackets, and port 0 lets the system choose.

    Raises:
        ValueError: the text is not an address.
    """
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    is_host = bool(host) and (bracketed or ":" not in host)
    if not (is_host and port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise ValueError(f"{text!r} is not HOST:PORT, such as 0.0.0.0:8080")
    return host, int(port)
