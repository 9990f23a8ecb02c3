"""Plays a few users of Big Time Deals: they like and unlike brands, a few times a second.

In: the AWS variables of the environment; `--writes` to end after so many, `--pause` between two, in
seconds. Out: items. On failure: a traceback, and exit code 1.
"""

import argparse
import random
import time
from itertools import count

import boto3

TABLE = "BigTimeDeals"
BRANDS = ("acme", "apex", "globex", "initech")
USERS = 50


def main() -> None:
    """Write until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=0, help="end after so many; 0: never")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two")
    given = parser.parse_args()
    table = boto3.resource("dynamodb").Table(TABLE)
    for number in count(1):
        brand, user = random.choice(BRANDS), f"user{random.randrange(USERS)}"
        key = f"BRANDLIKE#{brand}#{user}"
        if random.random() < 0.7:
            table.put_item(Item={"PK": key, "SK": key, "brand": brand, "username": user})
        else:
            table.delete_item(Key={"PK": key, "SK": key})
        if number == given.writes:
            break
        time.sleep(given.pause)


main()
