"""A model hub on the loopback: the few endpoints that ``huggingface_hub`` uses to see a repository and fetch files."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class ModelHub:
    """``files`` of each repository by name; ``requests`` has what was asked; ``cut`` files break off half way, once."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.cut: set[str] = set()
        self.lying: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.url = ""


@contextmanager
def serving(hub: ModelHub) -> Iterator[None]:
    """Serve ``hub`` from a thread; ``hub.url`` is where."""

    class Handler(_Handler):
        model_hub = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    model_hub: ModelHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        self.model_hub.requests.append(f"{self.command} {self.path}")

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            return self._about("/".join(parts[2:4]), parts[4:])
        if len(parts) >= 5 and parts[2] == "resolve":
            return self._file("/".join(parts[:2]), "/".join(parts[4:]))
        return self._refuse(404, "EntryNotFound")

    def _about(self, repo: str, rest: list[str]) -> None:
        files = self.model_hub.files.get(repo)
        if files is None:
            return self._refuse(404, "RepoNotFound")
        if rest[:1] == ["tree"]:
            found: object = [{"type": "file", "oid": _sha(c), "size": len(c), "path": n} for n, c in files.items()]
        else:
            siblings = [_sibling(name, content) for name, content in files.items()]
            found = {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
        return self._send(json.dumps(found).encode(), {"Content-Type": "application/json"})

    def _file(self, repo: str, name: str) -> None:
        if repo in self.model_hub.gated:
            return self._refuse(403, "GatedRepo")
        content = self.model_hub.files.get(repo, {}).get(name)
        if content is None:
            return self._refuse(404, "EntryNotFound")
        etag = _sha(content)
        content = self.model_hub.lying.get(name, content)
        return self._send(content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}, name)

    def _send(self, content: bytes, headers: dict[str, str], name: str = "") -> None:
        start, span = 0, self.headers.get("Range", "")
        if span.startswith("bytes="):
            start = int(span.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send_response(206 if span else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "GET":
            if name in self.model_hub.cut:
                self.wfile.write(content[start : start + (len(content) - start) // 2])
                self.close_connection = True
            else:
                self.wfile.write(content[start:])

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", f"{code}, said the test's hub")
        self.send_header("Content-Length", "0")
        self.end_headers()


def _sibling(name: str, content: bytes) -> dict[str, object]:
    lfs = {"sha256": _sha(content), "size": len(content), "pointerSize": 130}
    return {"rfilename": name, "size": len(content), "blobId": _sha(content), "lfs": lfs}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
