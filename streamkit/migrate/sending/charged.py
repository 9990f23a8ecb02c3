"""Charge calls to a rate that do not wait for it.

In: a client of DynamoDB, and a rate. Out: the same client; what its calls consume is paid off later
by those that wait. On failure: as the client.
"""

from functools import partial
from typing import Any

from streamkit.aws import AwsError, ErrorKind, trouble_of
from streamkit.migrate.sending.rate import Rate

_WRITES = frozenset({"delete_item", "put_item", "update_item"})


_OTHERS = frozenset({"batch_get_item", "get_item", "query", "transact_write_items"})


_REFUSED = {"CapacityUnits": 1.0}
"""The cost of a write of a small item whose condition does not hold."""


class Charged:
    """A client of DynamoDB whose calls are charged to a rate, but never wait.

    It is for a migration's writes of its own state and positions: a lease whose renewal waited
    would be lost.
    """

    def __init__(self, dynamodb: Any, rate: Rate) -> None:
        self._dynamodb = dynamodb
        self._rate = rate

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._dynamodb, name)
        if name in _WRITES:
            return partial(self._call, call, self._rate.charge_write)
        return partial(self._call, call, self._rate.charge) if name in _OTHERS else call

    async def _call(self, call: Any, charge: Any, **request: Any) -> Any:
        try:
            reply = await call(**{"ReturnConsumedCapacity": "INDEXES", **request})
        except AwsError as error:
            if trouble_of(error) is ErrorKind.CONDITION:
                self._rate.charge_write(_REFUSED, usual=False)
            raise
        charge(reply.get("ConsumedCapacity"), usual=False)
        return reply
