"""The protocol between a server and what uses it (``docs/protocol.md``): MessagePack messages over a WebSocket, and over the
local connection between the server's two processes."""

VERSION = 1
"""Both sides name theirs first; a server refuses another one than its own."""
