"""llama.cpp from a fresh Python to its first token: ``python -m benchmarks.first_token_llama MODEL THREADS PROMPT``."""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    model, threads, prompt = sys.argv[1:]
    from llama_cpp import Llama

    cores = int(threads)
    llama = Llama(model, n_ctx=2048, n_batch=512, n_threads=cores, n_threads_batch=cores, verbose=False)
    answer: Any = llama(prompt, max_tokens=1, temperature=0.0)
    print(answer["choices"][0]["text"], flush=True)


if __name__ == "__main__":
    main()
