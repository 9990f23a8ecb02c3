"""Build the ARNs of an app's tables and sinks. Pure.

In: an account and a Region, or the ARN of a table. Out: ARNs of everything else. A part that is not
known is `*`, which matches any value in IAM.
"""

import re
from dataclasses import dataclass
from typing import Self

from streamkit.errors import ConfigurationError

_TABLE_ARN = re.compile(r"arn:(aws[\w-]*):dynamodb:([\w-]+):(\d{12}):table/([\w.-]+)")
_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}


@dataclass(frozen=True, slots=True)
class AccountPlace:
    """An account's Region; `table` is the name to use for the app's table, if not the app's own."""

    account: str = "*"
    region: str = "*"
    partition: str = "aws"
    table: str | None = None

    @classmethod
    def of(
        cls, *, account: str | None = None, region: str | None = None, table_arn: str | None = None
    ) -> Self:
        """Return the place; the ARN of the app's table is enough for all of it.

        Raises:
            ConfigurationError: the ARN is not one of a table, or the account not twelve digits.
        """
        if table_arn is not None:
            found = _TABLE_ARN.fullmatch(table_arn)
            if found is None:
                raise ConfigurationError(f"{table_arn!r} is not the ARN of a table")
            partition, there, owner, name = found.groups()
            return cls(owner, there, partition, name)
        if account is not None and not re.fullmatch(r"\d{12}", account):
            raise ConfigurationError(f"an account has twelve digits, not {account!r}")
        region = region or "*"
        named = (name for head, name in _PARTITIONS.items() if region.startswith(head))
        return cls(account or "*", region, next(named, "aws"))

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource in this account and Region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def of_table(self, name: str, own: str) -> str:
        """Return the ARN of a table; `own` is the app's own, which may have another name here."""
        named = self.table if name == own and self.table is not None else name
        return self.arn("dynamodb", f"table/{named}")
