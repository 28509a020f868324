"""The runtime over HTTP and WebSocket. Wire formats are translated here; what acts is an inferlet."""
