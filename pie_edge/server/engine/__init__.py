"""The engine's process: the model, its device and the inferlets, behind a local connection. ``process`` is its start."""
