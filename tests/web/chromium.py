"""A page in a headless Chromium, served from here, and what it posts back."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu-sandbox", "--no-first-run", "--enable-unsafe-webgpu")

_TYPES = {"": "text/html", ".mjs": "text/javascript", ".json": "application/json"}
"""By the end of a path; that of the page has none."""


def chromium() -> str | None:
    """The program, where it is installed."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


def told(program: str, page: Path, files: Mapping[str, bytes], profile: Path, timeout: float) -> Any:
    """What ``page`` posts to /told as JSON. It may fetch ``files`` by their paths. Raises TimeoutError."""
    said: list[bytes] = []
    there = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = page.read_bytes() if self.path == "/" else files.get(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Type", _TYPES.get(Path(self.path).suffix, "application/octet-stream"))
            self.end_headers()
            self.wfile.write(data or b"")

        def do_POST(self) -> None:
            said.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            there.set()

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        command = [program, *_OPTIONS, f"--user-data-dir={profile}", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not there.wait(timeout):
                raise TimeoutError(f"{page.name} has told nothing in {timeout:.0f} s")
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    return json.loads(said[0])
