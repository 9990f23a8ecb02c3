"""What a function imports when it starts: nothing that it does not use."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
sys.modules["httpx"] = None  # the SDK would take it, where it is installed
import streamkit.aws_lambda
print(json.dumps(sorted(sys.modules)))
"""
COLLECTIONS = """
import gc, json, sys
seen, before = [], gc.get_threshold()
gc.callbacks.append(
    lambda phase, info: seen.append(("streamkit.app" in sys.modules, info["generation"]))
)
import streamkit.aws_lambda
gc.callbacks.clear()
print(json.dumps([seen, gc.get_freeze_count(), gc.get_threshold() == before]))
"""
UNUSED = {
    "aiosqlite",
    "click",
    "moto",
    "opentelemetry",
    "prometheus_client",
    "pytest",
    "rich",
    "sqlalchemy",
    "streamkit.archive",
    "streamkit.cli",
    "streamkit.fleet.coordinator",
    "streamkit.kinds.aggregate.aggregate",
    "streamkit.kinds.copy_directory",
    "streamkit.kinds.fan_out.fan_out",
    "streamkit.kinds.mirror",
    "streamkit.local",
    "streamkit.testing",
    "streamkit.worker.worker",
    "typer",
}


def printed(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_function_imports_neither_the_command_line_nor_the_engine_nor_optional_libraries():
    loaded = {name for name in json.loads(printed(PROGRAM)) if sys.modules.get(name, 1) is not None}
    assert "streamkit.aws_lambda.host" in loaded
    assert loaded & UNUSED == set()
    assert len(loaded) < 1_000


def test_collections_during_a_cold_start_look_only_at_what_was_imported_just_before():
    seen, frozen, restored = json.loads(printed(COLLECTIONS))
    assert {generation for late, generation in seen if late} == {0}
    assert frozen > 10_000
    assert restored
