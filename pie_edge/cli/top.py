"""``pie-edge top``: a server's figures, live."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Annotated

import typer

from pie_edge import remedies
from pie_edge.cli.figures import Between, Look, read, rows
from pie_edge.cli.outcome import reported
from pie_edge.cli.remote import DEFAULT_URL
from pie_edge.errors import Disconnected, Unsupported, UsageError

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE = 10.0
"""Seconds to wait for an answer."""


@reported
def top(
    server: Annotated[
        str, typer.Argument(metavar="[URL]", envvar="PIE_EDGE_URL", help="The server.", show_envvar=True)
    ] = DEFAULT_URL,
    api_key: Annotated[
        str, typer.Option(envvar="PIE_EDGE_API_KEY", help="The server's key, if it has one.", show_envvar=True)
    ] = "",
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="From one look to the next.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the figures since the server's start, and exit.")] = False,
) -> None:
    """Show what a server does: streams, queue, batch, tokens a second, times to first and next token, pages, cache, device."""
    if not server.startswith(("http://", "https://")):
        raise UsageError(f"{server} is no URL of a server; it begins with http:// or https://")
    if not 0.05 <= interval <= 3600:
        raise UsageError(f"--interval is {interval:g}; it must be from 0.05 to 3600 seconds")
    try:
        import prometheus_client  # noqa: F401
        from rich.live import Live
        from rich.text import Text
    except ImportError as error:
        raise Unsupported(f"{error.name} is not installed; `{remedies.install('server')}`") from None
    look = _look(server, api_key)
    if once:
        for name, text in rows(Between(None, look)):
            print(f"{name:<12}  {text}")
        return
    with Live(_table(server, Between(None, look)), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(interval)
            try:
                before, look = look, _look(server, api_key)
            except Disconnected as error:
                live.update(Text(error.message), refresh=True)
            else:
                live.update(_table(server, Between(before, look)), refresh=True)


def _look(server: str, api_key: str) -> Look:
    request = urllib.request.Request(server.rstrip("/") + "/metrics")
    if api_key:
        if not api_key.isascii() or not api_key.isprintable():
            raise UsageError("the API key is none: it has other characters than printable ASCII ones")
        request.add_header("authorization", f"Bearer {api_key}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read().decode()
        return read(text, time.monotonic())
    except urllib.error.HTTPError as error:
        with error:
            remedy = "give its --api-key" if error.code in (401, 403) else "is it a pie-edge server?"
            raise Disconnected(f"{server}/metrics answers with status {error.code}; {remedy}") from None
    except ValueError as error:  # UnicodeDecodeError, too
        raise Disconnected(f"what {server}/metrics answers are no metrics: {error}; is it a pie-edge server?") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise Disconnected(
            f"{server} doesn't answer: {reason}; start it with `pie-edge serve`, or name its URL"
        ) from None


def _table(server: str, figures: Between) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(server), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for name, text in rows(figures):
        # A model's name is text, not markup.
        table.add_row(name, Text(text))
    return table
