"""How fast this machine reads memory, and so what a token costs at least: ``python -m benchmarks.bandwidth``.

Decoding one stream reads every weight once a token. Each thread takes the dot product of an array with itself, far
larger than the caches, in a linear algebra library that does nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks import models
from benchmarks.harness import table

NBYTES = 256 << 20
"""Of each thread's array."""


def read_rate(threads: int, repeats: int = 8) -> float:
    """Bytes a second that ``threads`` threads read together, the best of some repeats."""
    # Its own threads would only be in the way; it reads this when it is loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy as np

    arrays = [np.ones(NBYTES // 4, np.float32) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        best = 0.0
        for _ in range(repeats):
            start = time.perf_counter()
            list(pool.map(lambda array: float(array @ array), arrays))
            best = max(best, threads * NBYTES / (time.perf_counter() - start))
    return best


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.bandwidth", description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    threads = parser.parse_args(argv).threads
    rate = read_rate(threads)
    print(f"{threads} threads read {rate / 1e9:.1f} GB/s\n")
    sizes = {name: models.find(name).stat().st_size for name in models.MODELS}
    rows = [[name, f"{size / 1e6:.0f}", f"{rate / size:.0f}"] for name, size in sizes.items()]
    print(table(("model", "MB", "one stream's tok/s at most"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
