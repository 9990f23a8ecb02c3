"""The function that Step Functions calls to migrate Big Time Deals; import your own app instead.

In: `{"migration": "0003"}`, which `streamkit migrate begin` has begun. Out: whether it is done, or
blocked until a person decides. On failure: Step Functions calls again.
"""

import streamkit.aws_lambda
from handlers.deals import app

migration = streamkit.aws_lambda.migration_handler(app)
