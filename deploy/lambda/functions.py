"""The functions that Lambda calls for Big Time Deals; import your own app instead.

In: events of the mapping, of the schedule, and of the queue for what the mapping gives up. Out:
what has to come again; counts. On failure: mapping and queue send it again.
"""

import streamkit.aws_lambda
from handlers.deals import app

stream = streamkit.aws_lambda.handler(app)
maintenance = streamkit.aws_lambda.maintenance_handler(app)
late = streamkit.aws_lambda.late_handler(app)
