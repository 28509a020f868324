"""The seam between models and devices: a recorded Program is plain data (``docs/architecture.md``, "A recorded Program")."""
