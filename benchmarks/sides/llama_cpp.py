"""llama.cpp through llama-cpp-python's plain bindings of its C functions, greedy on the C side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import llama_cpp as c

from benchmarks.sides.side import Job

CONTEXT, BATCH, SEQUENCES = 4096, 512, 16


class LlamaCppSide:
    def __init__(self, job: Job, context: int = CONTEXT, sequences: int = SEQUENCES, unified: bool = True) -> None:
        """``unified``: one cache for all sequences, so that each may be as long as it likes; else it is divided among them,
        and a sequence's attention passes over its own part only."""
        self._clock = job.clock
        c.llama_backend_init()
        c.llama_log_set(_QUIET, None)
        self._model = c.llama_model_load_from_file(str(job.model).encode(), c.llama_model_default_params())
        parameters = c.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = context, sequences
        parameters.n_batch = parameters.n_ubatch = BATCH
        parameters.n_threads = parameters.n_threads_batch = job.threads
        parameters.kv_unified = unified
        self._context = c.llama_init_from_model(self._model, parameters)
        self._batch = c.llama_batch_init(BATCH, 0, 1)
        self._sampler = c.llama_sampler_init_greedy()
        self.description = f"llama.cpp of llama-cpp-python {c.__version__}, CPU"

    def decode(self, prompt: Sequence[int], count: int) -> float:
        self._clear()
        token = self._prompt(0, prompt)
        start = self._clock()
        for position in range(len(prompt), len(prompt) + count):
            token = next(self.forward([(0, position, token, True)]))
        return count / (self._clock() - start)

    def prefill(self, prompt: Sequence[int]) -> float:
        self._clear()
        start = self._clock()
        self._prompt(0, prompt)
        return len(prompt) / (self._clock() - start)

    def streams(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        self._clear()
        start = self._clock()
        entries = [
            (sequence, position, token, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        tokens = list(self.forward(entries))
        for step in range(count - 1):
            entries = [(i, len(prompts[i]) + step, token, True) for i, token in enumerate(tokens)]
            tokens = list(self.forward(entries))
        return len(prompts) * count / (self._clock() - start)

    def close(self) -> None:
        c.llama_batch_free(self._batch)
        c.llama_free(self._context)
        c.llama_model_free(self._model)

    def forget(self, sequence: int, first: int) -> None:
        """A sequence's keys and values from position ``first`` on."""
        c.llama_memory_seq_rm(c.llama_get_memory(self._context), sequence, first, -1)

    def _clear(self) -> None:
        c.llama_memory_clear(c.llama_get_memory(self._context), False)

    def _prompt(self, sequence: int, prompt: Sequence[int]) -> int:
        last = len(prompt) - 1
        return next(self.forward([(sequence, i, token, i == last) for i, token in enumerate(prompt)]))

    def forward(self, entries: Sequence[tuple[int, int, int, bool]]) -> Iterator[int]:
        """One pass over ``(sequence, position, token, whether to read it out)``; the likeliest token of those read out."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (sequence, position, token, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if status := c.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode of {len(entries)} tokens gave {status}")
        for i, entry in enumerate(entries):
            if entry[3]:
                yield c.llama_sampler_sample(self._sampler, self._context, i)


# Kept here: the C side calls it for as long as it lives.
_QUIET = c.llama_log_callback(lambda level, text, data: None)
