"""Stands for `motley serve` in tests: answers /health, prints what it was given, ends as its extra flags say.

GET /crash ends it with 70. ``--fake-exit=N`` ends with N before listening, ``--fake-slow`` ignores SIGTERM, and
``--fake-child`` starts a process that would outlive it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main(arguments: list[str]) -> None:
    flags = dict(argument.partition("=")[::2] for argument in arguments)
    print("fake engine", json.dumps(arguments), flush=True)
    plan = json.loads(Path(flags["--plan"]).read_text())
    names = ("POD_NAME", "POD_IP", "HOME", "CUDA_VISIBLE_DEVICES", "HF_TOKEN")
    print("saw", json.dumps({"plan": plan["plan_hash"], **{name: os.environ.get(name) for name in names}}), flush=True)
    if "--fake-exit" in flags:
        sys.exit(int(flags["--fake-exit"]))
    if "--fake-child" in flags:
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        print("child", child.pid, flush=True)
    serve(flags["--host"], int(flags["--port"]), "--fake-slow" in flags)


def serve(host: str, port: int, slow: bool) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/crash":
                os._exit(70)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((host, port), Handler)

    def stop(*_: object) -> None:
        print("draining", flush=True)
        if not slow:
            threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    print(f"serving as {os.getpid()}", flush=True)
    server.serve_forever()
    server.server_close()


if __name__ == "__main__":
    main(sys.argv[1:])
