"""What an op's launches leave each other: the room that it takes."""

from __future__ import annotations

from pie_edge.program.ops import Op, Program


def scratch_bytes(program: Program, split: int) -> int:
    """For any op of a Program whose attention takes ``split`` keys at a time."""
    return max(_partial_sums(program, split), _copied_slots(program))


def _partial_sums(program: Program, split: int) -> int:
    """What the splits of the Program's largest attention take."""
    most = 0
    for op in program.ops:
        if op.kind == "attention":
            entries, sequences = program.values[op.inputs[8]].size, program.values[op.inputs[7]].size - 1
            heads = op.integer("heads")
            width = program.values[op.inputs[0]].shape[-1] // heads
            splits = entries * op.integer("page_size") // split + sequences + 1
            most = max(most, 4 * splits * heads * (width + 4))
    return most


def _copied_slots(program: Program) -> int:
    """What the tokens take that the Program's largest ``copy_slots`` holds between its launches."""
    moves = [op for op in program.ops if op.kind == "copy_slots"]
    return max((_slot_bytes(program, op) * program.values[op.inputs[1]].size for op in moves), default=0)


def _slot_bytes(program: Program, op: Op) -> int:
    state = program.values[op.outputs[0]]
    return state.nbytes // state.shape[0] // op.integer("page_size")
