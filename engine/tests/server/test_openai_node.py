"""The npm package ``openai``, unmodified, streaming and not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from server.fake_model import MODEL

SCRIPT = Path(__file__).parent / "openai_node" / "client.mjs"


@pytest.fixture(scope="module")
def node_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script and the package, installed by npm from wherever npm is configured to look."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("node")
    shutil.copy(SCRIPT, folder)
    command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder), "openai"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "CI": "1"})
    if done.returncode != 0:
        pytest.skip(f"npm could not install openai: {done.stderr[-500:]}")
    return folder


@pytest.mark.slow
def test_the_npm_package_works_unmodified(live, node_project: Path):
    command = ["node", SCRIPT.name, f"{live.url}/v1", MODEL]
    done = subprocess.run(command, cwd=node_project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["models"] == [MODEL]
    assert seen["chat"] == [["hello", "stop"], ["hello", "stop"]]
    assert seen["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert seen["tokens"] == ["h", "e", "l", "l", "o", "<|end|>"]
    assert seen["streamed"]["role"] == "assistant"
    assert seen["streamed"]["text"] == "hel"
    assert seen["streamed"]["finish"] == ["stop"]
    assert seen["streamed"]["usage"]["completion_tokens"] == 5
    assert seen["helper"] == "hello"
    assert seen["completion"] == "abcab"
    assert seen["completionStream"] == "abc"
    assert seen["fault"] == {"kind": "BadRequestError", "status": 400, "param": "temperature"}
    assert seen["first"] == "a"
