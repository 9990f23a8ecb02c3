"""The functions that the runtime client of the tests invokes: a module as it is packaged."""

import streamkit.aws_lambda
from tests.integration.shop_app import app

handler = streamkit.aws_lambda.handler(app)
maintenance = streamkit.aws_lambda.maintenance_handler(app)
