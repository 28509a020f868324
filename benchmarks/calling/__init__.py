"""Agents that call tools, as programs and as clients, and what serves them: for ``benchmarks.agents``."""
