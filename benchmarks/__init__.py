"""Measurements, each one a command: ``python -m benchmarks.speed`` from the checkout's root. Figures: docs/performance.md."""
