"""The devices: one package per API, each a `Backend` (see ``pie_edge/backend.py``). Opened only through ``backend.open``."""
