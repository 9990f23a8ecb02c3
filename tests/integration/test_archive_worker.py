"""Workers that write an archive in real time, to a directory and to moto's bucket, and verify it."""

import anyio
import pytest

from streamkit import App
from streamkit.archive import BucketArchive, DirectoryArchive
from streamkit.aws import connect
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.operate.past.archives import verify_archive
from streamkit.settings import Settings
from streamkit.testing.harness import table_of
from streamkit.worker.process import Workers
from tests.integration.test_bucket_archive import bucket  # noqa: F401 - a fixture
from tests.simulation.test_archive import app_of

SETTINGS = Settings(heartbeat=0.5, lease=2.0, poll_floor=0.01, poll_ceiling=0.05)


@pytest.mark.parametrize("kind", ["directory", "bucket"])
async def test_what_a_worker_has_read_is_archived_when_it_ends(kind, tmp_path, bucket):  # noqa: F811
    place = f"s3://changes/{kind}"
    app: App = app_of(DirectoryArchive(tmp_path) if kind == "directory" else BucketArchive(place))
    async with connect(http_session=session_class(Engine())) as aws:
        await aws.dynamodb.create_table(**table_of(app))
        for number in range(30):
            item = {"PK": {"S": f"NOTE#{number}"}, "SK": {"S": f"NOTE#{number}"}}
            item["number"] = {"N": str(number)}
            await aws.dynamodb.put_item(TableName=app.table, Item=item)
        with anyio.fail_after(30):
            await Workers([app], aws, SETTINGS).run(until_idle=True)
        found = await verify_archive(app, aws)
    assert found.whole
    assert found.records >= 30
