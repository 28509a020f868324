"""Load on a server from a process of its own: arrivals, profiles of use, and what came back when (``benchmarks.serve``)."""
