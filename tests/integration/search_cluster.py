"""A stand-in for a search cluster: the bulk API with external versions, as its documentation says.

An operation with `external_gte` is taken if its version is at least the stored one; a deletion
leaves its version behind. Everything else is refused as the real ones refuse it.
"""

import json
from dataclasses import dataclass, field

VERSION_MAX = 2**63 - 1


def failure(status, kind):
    return {"status": status, "error": {"type": kind, "reason": "a reason with data"}}


@dataclass
class SearchCluster:
    """`answer` is for an `HttpServer`; `trouble` maps a document's id to an answer for it."""

    documents: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    trouble: dict = field(default_factory=dict)
    bytes_max: int = 10**9
    calls: int = 0

    def answer(self, request):
        self.calls += 1
        if (request.method, request.path) != ("POST", "/_bulk"):
            return (405, {}, b"")
        if request.headers["content-type"] != "application/x-ndjson":
            return (406, {}, b"")
        if len(request.body) > self.bytes_max:
            return (413, {}, b"")
        if not request.body.endswith(b"\n"):
            return (400, {}, b"")
        lines = iter(request.body.decode().splitlines())
        items = []
        for line in lines:
            ((kind, about),) = json.loads(line).items()
            document = json.loads(next(lines)) if kind == "index" else None
            items.append({kind: self.operate(kind, about, document)})
        errors = any("error" in result for item in items for result in item.values())
        return (200, {}, json.dumps({"errors": errors, "items": items}).encode())

    def operate(self, kind, about, document):
        where = (about["_index"], about["_id"])
        version, stored = about["version"], self.versions.get(where)
        assert about["version_type"] == "external_gte"
        assert isinstance(version, int)
        assert 0 <= version <= VERSION_MAX
        if about["_id"] in self.trouble:
            return self.trouble[about["_id"]]
        if stored is not None and version < stored:
            return failure(409, "version_conflict_engine_exception")
        self.versions[where] = version
        there = where in self.documents
        if kind == "delete":
            self.documents.pop(where, None)
            return {"status": 200 if there else 404, "result": "deleted" if there else "not_found"}
        self.documents[where] = document
        return {"status": 200 if there else 201, "result": "updated" if there else "created"}
