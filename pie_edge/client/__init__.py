"""What a Python program uses to talk to a server (``docs/client.md``)."""

from __future__ import annotations

from pie_edge.client.client import Client, connect
from pie_edge.client.instance import File, Instance, Output, Result
from pie_edge.client.program import Program, inferlet
from pie_edge.client.server import Server

__all__ = ["Client", "File", "Instance", "Output", "Program", "Result", "Server", "connect", "inferlet"]
