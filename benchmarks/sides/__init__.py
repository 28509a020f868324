"""What is measured against each other. Each side runs in a process of its own (``benchmarks.worker``)."""
