"""A page in a headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
PATIENCE = 30.0
"""Seconds for the browser to start, and for anything on a page to come true."""


class Page:
    """``problems`` are exceptions and what the page's policy kept it from; ``violated`` is run with each look at them."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self.problems: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def resize(self, width: int, height: int) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript on the page; of a promise, what it gives. Raises RuntimeError for an exception."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Its value once that is something. Raises TimeoutError."""
        end = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} is still {value!r}; the page says {self.problems}")
            time.sleep(0.05)
        return value

    def type(self, selector: str, text: str) -> None:
        """As a person would: into the focused element."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self._call("Input.insertText", text=text)

    def press_enter(self) -> None:
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        self._call("Input.dispatchKeyEvent", type="keyDown", **key)
        self._call("Input.dispatchKeyEvent", type="keyUp", **key)

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._connection.recv(PATIENCE))
            if told.get("id") == number:
                assert "error" not in told, told
                return dict(told["result"])
            if told.get("method") == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(told["params"]["exceptionDetails"])[:1000])
            elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.problems.append(told["params"]["entry"]["text"])


@contextmanager
def browsing(program: str, profile: Path) -> Iterator[Page]:
    """An empty page of a browser of its own."""
    command = [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = _port(profile / "DevToolsActivePort")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
            targets = json.load(answer)
        url = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
        with connect(url, max_size=None) as connection:
            yield Page(connection)
    finally:
        browser.terminate()
        browser.wait()


def _port(path: Path) -> int:
    end = time.monotonic() + PATIENCE
    while True:
        # The file is there before its content is.
        if path.exists() and len(lines := path.read_text(encoding="ascii").splitlines()) == 2:
            return int(lines[0])
        if time.monotonic() > end:
            raise TimeoutError("the browser doesn't start")
        time.sleep(0.05)
