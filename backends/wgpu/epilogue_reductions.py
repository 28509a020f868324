"""A kernel's reductions as WGSL: every lane brings its elements together, then the lanes do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pie_edge.backends.shared.epilogue_dialect import Partial
from pie_edge.backends.shared.epilogue_reductions import COLUMNS, FEW
from pie_edge.backends.shared.epilogue_writer import Reducer
from pie_edge.backends.wgpu.epilogue_text import WGSL
from pie_edge.sampling.dialects.kernel import Reduction

SHARED_WORDS = 3072
"""Of the 16 KiB of workgroup memory that WebGPU promises."""


class WgslReducer(Reducer):
    _columns = 0
    """Of workgroup memory that are used."""

    def declarations(self) -> Iterator[str]:
        """Workgroup memory: each column has a word for every lane."""
        for column in range(self._columns):
            yield f"var<workgroup> shared_{column}: array<u32, {self._lanes}>;"

    def begin(self, reduction: Reduction) -> Partial:
        partial = Partial(reduction, WGSL)
        self._line(f"var {partial.value}: {partial.type} = {partial.never};")
        if partial.is_of_index:
            self._line(f"var {partial.index} = 0u;")
        if partial.keeps_loss:
            self._line(f"var {partial.loss} = 0.0;")
        return partial

    def take(self, partial: Partial, value: str, index: str = "index") -> None:
        kept = partial.value
        if partial.keeps_loss:
            self._sum(partial, value)
        elif partial.sums:
            self._line(f"{kept} += {value};")
        elif partial.is_of_index:
            self._line(f"if ({partial.better(value, kept)}) {{ {kept} = {value}; {partial.index} = {index}; }}")
        else:
            self._line(f"if ({partial.better(value, kept)}) {{ {kept} = {value}; }}")

    def finish(self, partials: Sequence[Partial]) -> dict[int, str]:
        for partial in partials:
            if partial.keeps_loss:
                # What a lane's sum has rounded away goes back into it, unless that is infinite or not a number.
                total = partial.value
                whole = f"(bitcast<u32>({total}) & 0x7F800000u) != 0x7F800000u"
                self._line(f"if ({whole}) {{ {total} = exact({total} + {partial.loss}); }}")
        found: dict[int, str] = {}
        width = max(1, SHARED_WORDS // (2 * self._lanes))
        for at in range(0, len(partials), width):
            found |= self._combine(partials[at : at + width])
        return found

    def _sum(self, partial: Partial, value: str) -> None:
        """A sum, and what it rounds away (Knuth's TwoSum): a lane may sum thousands of numbers."""
        total, loss = partial.value, partial.loss
        self._line("{")
        self._line(f"    let next = exact({total} + {value});")
        self._line(f"    let part = exact(next - {total});")
        self._line(f"    let lost = exact(exact({total} - exact(next - part)) + exact({value} - part));")
        self._line(f"    {total} = next;")
        self._line(f"    {loss} = exact({loss} + lost);")
        self._line("}")

    # Lanes together.

    def _combine(self, partials: Sequence[Partial]) -> dict[int, str]:
        columns = self._lanes if self._lanes <= FEW else COLUMNS
        self._line("workgroupBarrier();")
        self._share(partials)
        self._line("workgroupBarrier();")
        if columns < self._lanes:
            self._line(f"if (lane < {columns}u) {{")
            self._gather(partials, f"lane + {columns}u", self._lanes, columns)
            self._share(partials)
            self._line("}")
            self._line("workgroupBarrier();")
        for partial in partials:
            self._line(f"{partial.value} = {partial.never};")
            if partial.is_of_index:
                self._line(f"{partial.index} = 0u;")
        self._gather(partials, "0u", columns, 1)
        return {
            partial.reduction.number: partial.index if partial.is_of_index else partial.value for partial in partials
        }

    def _share(self, partials: Sequence[Partial]) -> None:
        """Write this lane's values to shared memory."""
        for number, partial in enumerate(partials):
            self._line(f"{self._place(2 * number, 'lane')} = {WGSL.as_word(partial.value, partial.element)};")
            if partial.is_of_index:
                self._line(f"{self._place(2 * number + 1, 'lane')} = {partial.index};")

    def _gather(self, partials: Sequence[Partial], begin: str, end: int, step: int) -> None:
        """Bring some lanes' values into this one's."""
        self._line(f"for (var other = {begin}; other < {end}u; other += {step}u) {{")
        for number, partial in enumerate(partials):
            value, kept = f"o{partial.reduction.number}", partial.value
            self._line(f"let {value} = {WGSL.from_word(self._place(2 * number, 'other'), partial.element)};")
            if partial.is_of_index:
                self._take_lower(partial, value, self._place(2 * number + 1, "other"))
            elif partial.keeps_loss:
                self._line(f"{kept} = exact({kept} + {value});")
            else:
                self.take(partial, value, "other")
        self._line("}")

    def _take_lower(self, partial: Partial, value: str, index: str) -> None:
        """Like ``take``, of elements in any order: of equal ones the lower index stays."""
        kept, place = partial.value, partial.index
        same = WGSL.forms["eq", partial.element].format(value, kept)
        better = f"{partial.better(value, kept)} || ({same} && {index} < {place})"
        self._line(f"if ({better}) {{ {kept} = {value}; {place} = {index}; }}")

    def _place(self, column: int, lane: str) -> str:
        self._columns = max(self._columns, column + 1)
        return f"shared_{column}[{lane}]"
