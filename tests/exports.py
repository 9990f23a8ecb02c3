"""Write an export of a table as DynamoDB does, and answer as S3 does where it is."""

import gzip
import hashlib
import json
from base64 import b64encode
from datetime import UTC, datetime
from io import BytesIO


class Body(BytesIO):
    """The body of a reply of S3."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()

    async def read(self):
        return super().read()


def export(folder, table, items, *, moment, files=3, **about):
    """Write an export that shows a table at a moment; return the place of its summary.

    Items go to files by their order; the first file is empty, as that of an empty partition is.
    """
    (folder / "data").mkdir(parents=True, exist_ok=True)
    listed = []
    for number in range(files + 1):
        own = items[number - 1 :: files] if number else []
        lines = [json.dumps({"Item": one}, default=_bytes) + "\n" for one in own]
        name = f"{number:026d}.json.gz"
        body = gzip.compress("".join(lines).encode(), mtime=0)
        (folder / "data" / name).write_bytes(body)
        md5 = b64encode(hashlib.md5(body).digest()).decode()
        key = f"exports/AWSDynamoDB/01/data/{name}"
        listed.append({"itemCount": len(own), "md5Checksum": md5, "dataFileS3Key": key})
    lines = "".join(json.dumps(one) + "\n" for one in listed)
    (folder / "manifest-files.json").write_text(lines)
    shown = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    summary = {
        "version": "2020-06-30",
        "tableArn": f"arn:aws:dynamodb:us-east-1:000000000000:table/{table}",
        "exportTime": shown.replace("+00:00", "Z"),
        "manifestFilesS3Key": "exports/AWSDynamoDB/01/manifest-files.json",
        "itemCount": len(items),
        "outputFormat": "DYNAMODB_JSON",
        "exportType": "FULL_EXPORT",
    }
    path = folder / "manifest-summary.json"
    path.write_text(json.dumps(summary | about))
    return str(path)


def _bytes(value):
    return b64encode(value).decode()
