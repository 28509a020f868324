"""Snapshots: a context is kept on disk under a name, and goes on after a restart, on another device or page size."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pie_edge.control.snapshot import Content, PageState, Recurrent
from pie_edge.errors import InvalidHandle, ResourceError
from pie_edge.host import snapshots
from pie_edge.host.snapshot_format import MAGIC, DamagedError, MismatchError, Model, decode, encode
from pie_edge.host.snapshots import Snapshots
from tests.host.hosting import Ended, finish
from tests.host.tiny_hosting import on_tiny, run_tiny

# The format. Two layers whose heads differ in number and width, as some families have them.

HEADS = {"k.0": (2, 16), "v.0": (2, 16), "k.1": (1, 32), "v.1": (1, 32)}
NUMPY: dict[str, Any] = {"f32": np.float32, "f16": np.float16}


def model(page_size: int, dtype: str, fingerprint: str = "one") -> Model:
    vector = 16 // (4 if dtype == "f32" else 2)
    states = []
    for name, (heads, width) in HEADS.items():
        shape = (9, heads, width // vector, page_size, vector) if name[0] == "k" else (9, heads, page_size, width)
        states.append(PageState(name, dtype, shape))
    states.insert(2, PageState("key_positions", "u32", (9, page_size)))
    return Model("made up", fingerprint, tuple(states))


def laid_out(of: Model, tokens: dict[str, Any], length: int) -> tuple[bytes, ...]:
    """The pages as a device has them, one value at a time."""
    size = of.page_size
    pages = []
    for page in range(-(-length // size)):
        parts = b""
        for state in of.states:
            kind = NUMPY.get(state.dtype, np.uint32)
            array = np.zeros(state.shape[1:], kind)
            for slot in range(min(size, length - page * size)):
                value = tokens[state.name][page * size + slot]
                if state.name == "key_positions":
                    array[slot] = value
                elif state.name[0] == "v":
                    array[:, slot, :] = value
                else:
                    for head in range(value.shape[0]):
                        for place in range(value.shape[1]):
                            array[head, place // state.shape[4], slot, place % state.shape[4]] = value[head, place]
            parts += array.tobytes()
        pages.append(parts)
    return tuple(pages)


def some_tokens(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(length)
    # Numbers that float16 has, too.
    found: dict[str, Any] = {name: rng.integers(-999, 999, (length, *shape)) / 8 for name, shape in HEADS.items()}
    return found | {"key_positions": rng.integers(0, 1000, length)}


@pytest.mark.parametrize("length", [0, 1, 8, 21])
@pytest.mark.parametrize("first", [(8, "f32"), (16, "f16")])
@pytest.mark.parametrize("second", [(8, "f32"), (16, "f16"), (32, "f32")])
def test_what_one_device_keeps_another_lays_out_its_own_way(
    length: int, first: tuple[int, str], second: tuple[int, str]
) -> None:
    source, target, tokens = model(*first), model(*second), some_tokens(length)
    bits = (0b101, 0, 1) if length > 16 and first[0] == 8 else (0,) * -(-length // first[0])
    kept = Content(length, laid_out(source, tokens, length), bits, tuple(range(length)))
    found, note = decode(target, encode(source, kept, "a nöte"))
    assert note == "a nöte"
    assert (found.length, found.history) == (length, tuple(range(length)))
    assert found.pages == laid_out(target, tokens, length)
    hidden = {
        place
        for page, one in enumerate(found.hidden)
        for place in range(32)
        if one >> place & 1
        for place in [page * second[0] + place]
    }
    assert hidden == ({0, 2, 16} if any(bits) else set())


def example() -> bytes:
    return encode(model(8, "f32"), Content(5, laid_out(model(8, "f32"), some_tokens(5), 5), (0,), ()), "note")


def test_another_model_s_snapshot_is_refused() -> None:
    with pytest.raises(MismatchError, match=r"it is of the model 'made up' \(one\)"):
        decode(model(8, "f32", "two"), example())


def changed(data: bytes, **fields: Any) -> bytes:
    """With other fields in its header."""
    length = int.from_bytes(data[8:12], "little")
    header = {name: value for name, value in (json.loads(data[12 : 12 + length]) | fields).items() if value is not None}
    head = json.dumps(header).encode()
    return data[:8] + len(head).to_bytes(4, "little") + head + data[12 + length :]


DAMAGES = {
    "nothing": (lambda data: b"", "doesn't begin as a snapshot"),
    "another file": (lambda data: b"GGUF" + data, "doesn't begin as a snapshot"),
    "only a magic": (lambda data: MAGIC, "its header can't be read"),
    "half a header": (lambda data: data[:40], "its header can't be read"),
    "a header of another kind": (lambda data: data[:8] + b"\x02\0\0\0[]", "its header can't be read"),
    "half of it": (lambda data: data[: len(data) // 2], "bytes of keys and values where"),
    "one byte less": (lambda data: data[:-1], "bytes of keys and values where"),
    "one byte more": (lambda data: data + b"x", "bytes of keys and values where"),
    "a bit": (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "were changed"),
    "a field": (lambda data: changed(data, length=None), "its header is wrong (KeyError"),
    "a type": (lambda data: changed(data, length="five"), "its header is wrong"),
    "a length": (lambda data: changed(data, length=6), "bytes of keys and values where"),
    "a negative length": (lambda data: changed(data, length=-1), "bytes of keys and values where"),
    "an encoding": (lambda data: changed(data, dtype="<f8"), "its values are '<f8'"),
    "hidden tokens": (lambda data: changed(data, hidden=3), "its header is wrong"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_what_was_damaged_is_refused(case: str) -> None:
    damage, said = DAMAGES[case]
    with pytest.raises(DamagedError) as refused:
        decode(model(8, "f32"), damage(example()))
    assert said in str(refused.value)


SLOTS = (PageState("conv_tail.0", "f32", (5, 19, 6)), PageState("delta.0", "f32", (5, 2, 3, 4)))


def recurrent(folded: bool = True) -> tuple[Model, Content]:
    of = replace(model(8, "f32"), slots=SLOTS)
    head, earlier = (bytes([seed]) * of.slot_bytes for seed in (1, 2))
    state = Recurrent(7, 3 if folded else 0, head, earlier if folded else b"")
    return of, Content(5, laid_out(of, some_tokens(5), 5), (0,), (1, 2, 3, 4, 5), state)


@pytest.mark.parametrize("folded", [False, True])
def test_recurrent_state_comes_back_as_it_was(folded: bool) -> None:
    of, content = recurrent(folded)
    assert decode(of, encode(of, content, "note")) == (content, "note")
    with pytest.raises(MismatchError):
        decode(model(8, "f32"), encode(of, content, "note"))
    with pytest.raises(MismatchError):
        decode(replace(of, slots=SLOTS[:1]), encode(of, content, "note"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": {"end": 7, "base": 3, "folded": False}}, "bytes of keys and values where"),
        ({"state": None}, "it is of 5 tokens, and has 0 slots of recurrent state"),
        ({"state": {"end": 4, "base": 3, "folded": True}}, "its recurrent state is of 3 to 4 tokens, and it of 5"),
        ({"state": {"end": 7, "base": 6, "folded": True}}, "its recurrent state is of 6 to 7 tokens, and it of 5"),
        ({"state": [7, 3]}, "its header is wrong (TypeError"),
    ],
)
def test_recurrent_state_that_was_damaged_is_refused(fields: dict[str, Any], said: str) -> None:
    of, content = recurrent()
    with pytest.raises(DamagedError) as refused:
        decode(of, changed(encode(of, content, ""), **fields))
    assert said in str(refused.value)


# The folder.


class PlayedEngine:
    """Keeps what it is given."""

    page_states = model(8, "f32").states
    slot_states = ()
    content = Content(5, laid_out(model(8, "f32"), some_tokens(5), 5), (0,), (1, 2, 3, 4, 5))

    def __init__(self) -> None:
        self.loaded: list[Content] = []

    async def save_context(self, space: Any, working_set: int, length: int) -> Content:
        return self.content

    def load_context(self, space: Any, working_set: int, content: Content) -> None:
        self.loaded.append(content)


SPACE: Any = SimpleNamespace(name="program")


def shelf(folder: Path, fingerprint: str = "one", **options: Any) -> Snapshots:
    return Snapshots(folder, PlayedEngine(), "made up", lambda: fingerprint, **options)


def save(on: Snapshots, name: str, note: str = "") -> None:
    asyncio.run(on.save(SPACE, 1, name, 5, note))


def load(on: Snapshots, name: str) -> str:
    return asyncio.run(on.load(SPACE, 1, name))


NAMES = [
    "a",
    "A",
    "../up",
    "/etc/passwd",
    "with space.kv",
    "grüße \U0001f600",
    ".",
    "..",
    "nul",
    "x" * 128,
    "a/b\\c:d*?",
]


def test_any_name_keeps_its_own_snapshot_inside_of_the_folder(tmp_path: Path) -> None:
    on = shelf(tmp_path / "deep" / "snapshots")
    assert on.names() == []
    for name in NAMES:
        save(on, name, f"of {name}")
    assert on.names() == sorted(NAMES)
    assert [load(on, name) for name in NAMES] == [f"of {name}" for name in NAMES]
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parent for path in files} == {tmp_path / "deep" / "snapshots"}
    assert len({str(path).lower() for path in files}) == len(NAMES)


def test_a_snapshot_is_replaced_and_deleted(tmp_path: Path) -> None:
    on = shelf(tmp_path)
    save(on, "name", "first")
    save(on, "name", "second")
    assert load(on, "name") == "second"
    (tmp_path / "readme.kv").write_text("somebody else's")
    assert on.names() == ["name"]
    on.delete("name")
    for ask in (load, lambda on, name: on.delete(name)):
        with pytest.raises(InvalidHandle, match="there is no snapshot 'name'; there are none"):
            ask(on, "name")


def test_a_failed_save_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = shelf(tmp_path)
    save(on, "name", "first")

    def no_space(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", no_space)
        with pytest.raises(ResourceError, match=f"program can't save to {tmp_path}: No space left on device"):
            save(on, "name", "second")
    assert load(on, "name") == "first"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["", "x" * 129, "ü" * 65])
def test_a_name_has_some_length(tmp_path: Path, name: str) -> None:
    with pytest.raises(ResourceError, match="a snapshot's name of .* bytes; give it 1 to 128"):
        save(shelf(tmp_path), name)


def test_there_is_room_for_so_many_snapshots_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = shelf(tmp_path / "bytes", capacity=len(example()) + 100)
    save(on, "first")
    with pytest.raises(ResourceError, match="has 1 of .* bytes, and room for 1000 of .*. Delete some"):
        save(on, "second")
    save(on, "first")
    monkeypatch.setattr(snapshots, "MOST_SNAPSHOTS", 2)
    on = shelf(tmp_path / "count")
    save(on, "first")
    save(on, "second")
    save(on, "second")
    with pytest.raises(ResourceError, match="has 2 of"):
        save(on, "third")


def test_damage_and_other_models_are_told_by_name(tmp_path: Path) -> None:
    save(shelf(tmp_path), "name")
    with pytest.raises(ResourceError, match=r"'name' for made up \(two\), and it is of the model 'made up' \(one\)"):
        load(shelf(tmp_path, "two"), "name")
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        ResourceError, match="the snapshot 'name', which is damaged: it has .* delete it and save it again"
    ):
        load(shelf(tmp_path), "name")


# From inside of an inferlet, through a restart.

HEAD = "from inferlet import Context, errors, model, snapshots\n"
WRITER = (
    HEAD
    + """
async def main(input):
    context = Context(model)
    context.fill("the end of the ")
    await context.save("story")
    return [len(context.tokens), await context.generate_until(max_tokens=6, stop_tokens=[])]
"""
)
READER = (
    HEAD
    + """
async def main(input):
    context = await Context.load("story")
    return [len(context.tokens), await context.generate_until(max_tokens=6, stop_tokens=[])]
"""
)


def after_a_restart(source: str, folder: Path, **options: Any) -> tuple[Ended, Any]:
    """What it gave, and what it used."""

    async def body(host: Any, _: Any) -> tuple[Ended, Any]:
        instance = host.launch(source, {}, seed=1)
        ended = await asyncio.wait_for(instance.result(), 30)
        return Ended(ended.result), ended.usage

    found: tuple[Ended, Any] = on_tiny(body, data=folder, **options)
    return found


@pytest.mark.parametrize("page_size", [8, 16])
def test_a_context_goes_on_after_a_restart_and_nothing_is_forwarded_again(tmp_path: Path, page_size: int) -> None:
    written, _ = after_a_restart(WRITER, tmp_path)
    settings = {} if page_size == 8 else {"page_size": 16}
    read, usage = after_a_restart(READER, tmp_path, settings=settings)
    assert read.result == written.result
    # The last token of the context, whose logits aren't kept, and those that were made but the last.
    assert usage.forwarded_tokens == 6


def test_a_program_lists_and_deletes_and_hears_what_cannot_be(tmp_path: Path) -> None:
    after_a_restart(WRITER, tmp_path)
    source = (
        HEAD
        + """
async def main(input):
    told = [snapshots.names()]
    for name in ("nothing", "story"):
        try:
            await Context.load(name)
        except errors.PieError as error:
            told.append([type(error).__name__, str(error)])
    snapshots.delete("story")
    try:
        snapshots.delete("story")
    except errors.InvalidHandle as error:
        told.append(str(error))
    return told + [snapshots.names()]
"""
    )
    ended = run_tiny(source, data=tmp_path, fingerprint="another")
    assert ended.error is None, ended.traceback
    names, unknown, other, gone, left = ended.result
    assert names == ["story"]
    assert unknown == ["InvalidHandle", "there is no snapshot 'nothing'; there are 'story'"]
    assert other[0] == "ResourceError"
    assert "for tiny (another), and it is of the model 'tiny' (tiny); run that model" in other[1]
    assert gone == "there is no snapshot 'story'; there are none"
    assert left == []


def test_a_host_without_a_folder_keeps_none() -> None:
    async def body(host: Any, _: Any) -> Ended:
        return await finish(host, WRITER)

    ended = on_tiny(body)
    assert getattr(ended.error, "cause", None) == "resource"
    assert "this host keeps no snapshots" in str(ended.error)
