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
UNUSED = {
    "aiosqlite",
    "click",
    "moto",
    "opentelemetry",
    "prometheus_client",
    "pytest",
    "rich",
    "sqlalchemy",
    "streamkit.cli",
    "streamkit.fleet.coordinator",
    "streamkit.local",
    "streamkit.testing",
    "streamkit.worker.worker",
    "typer",
}


def test_a_function_imports_neither_the_command_line_nor_the_engine_nor_optional_libraries():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {name for name in json.loads(done.stdout) if sys.modules.get(name, 1) is not None}
    assert "streamkit.aws_lambda.host" in loaded
    assert loaded & UNUSED == set()
    assert len(loaded) < 1_000
