"""The binding to wasmtime's C API: a smoke test for the pinned version, and the clock and the order of turns."""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from importlib.metadata import version
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasmtime import Config, Engine, Store, WasmtimeError, wat2wasm
from wasmtime.component import Component, Linker

from pie_edge.errors import OutOfPages
from pie_edge.host.sandbox import CONFIGURATION
from pie_edge.host.schedule import PATIENCE, Schedule
from pie_edge.host.ticker import Ticker
from pie_edge.host.wasm.fiber import ExportCall, HostFunctionError, Instantiation, yield_on_epoch
from pie_edge.host.wasm.imports import Imports

# Each export hands its argument to the host function of the same name and gives back what that gives.
ECHO = """
(component
  (import "host" (instance $host
    {imports}))
  (core module $memory (memory (export "memory") 64)
    (global $top (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $top) (i32.const 15)) (i32.const -16)))
      (global.set $top (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $m (instantiate $memory))
  {exports}
)
"""
TYPES = {
    "strings": "string",
    "bytes": "(list u8)",
    "words": "(list u32)",
    "signed": "(list s32)",
    "floats": "(list f32)",
    "bools": "(list bool)",
    "records": "(list (tuple u64 string))",
    "options": "(option (list u32))",
}
# How a type's value is flattened: a pointer and a length, or a case and those.
FLAT = dict.fromkeys(TYPES, "i32 i32") | {"options": "i32 i32 i32"}


def echo_component(name: str) -> bytes:
    kind, flat = TYPES[name], FLAT[name]
    count = len(flat.split())
    call = " ".join(f"(local.get {i})" for i in range(count))
    exports = f"""
  (core func $lowered (canon lower (func $host "{name}") (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
  (core module $code
    (import "" "f" (func $f (param {flat} i32)))
    (func (export "run") (param {flat}) (result i32) (call $f {call} (i32.const 16)) (i32.const 16)))
  (core instance $c (instantiate $code (with "" (instance (export "f" (func $lowered))))))
  (func (export "run") (param "x" {kind}) (result {kind})
    (canon lift (core func $c "run") (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))"""
    return bytes(
        wat2wasm(ECHO.format(imports=f'(export "{name}" (func (param "x" {kind}) (result {kind})))', exports=exports))
    )


def engine() -> Engine:
    config = Config()
    config.wasm_component_model = True
    config.epoch_interruption = True
    return Engine(config)


ENGINE = engine()


def call(component: Component, name: str, function: Any, *arguments: Any, blocking: bool = False) -> Any:
    """What the export ``run`` gives, with ``function`` as the import ``name``."""
    linker = Linker(ENGINE)
    imports = Imports(linker, {})
    with linker.root() as root, root.add_instance("host") as instance:
        imports.add(instance, name, lambda guest, *values: function(*values), blocking)
    store = Store(ENGINE)
    yield_on_epoch(store)
    store.set_epoch_deadline(10**9)
    loading = Instantiation(imports, None, store, component)
    assert loading.poll()
    running = ExportCall(imports, None, store, loading.instance, "run", arguments)
    while not running.poll():
        assert running.blocked_on is not None
        running.blocked_on.turn()  # type: ignore[attr-defined]
    result = running.result
    running.free()
    return result


COMPONENTS = {name: Component(ENGINE, echo_component(name)) for name in TYPES}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "strings": st.text(max_size=50),
    "bytes": st.binary(max_size=50),
    "words": st.lists(st.integers(0, 2**32 - 1), max_size=50),
    "signed": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=50),
    "floats": st.lists(st.floats(width=32, allow_nan=False), max_size=50),
    "bools": st.lists(st.booleans(), max_size=50),
    "options": st.none() | st.lists(st.integers(0, 2**32 - 1), max_size=50),
}


def test_the_pinned_version_is_the_one_that_was_tested() -> None:
    assert CONFIGURATION.startswith(f"wasmtime {version('wasmtime')} ")


@pytest.mark.parametrize("name", VALUES)
def test_values_survive_the_way_into_a_guest_and_back_out(name: str) -> None:
    @given(VALUES[name])
    def check(value: Any) -> None:
        seen: list[Any] = []

        def host(given: Any) -> Any:
            seen.append(given)
            return given

        assert call(COMPONENTS[name], name, host, value) == value
        assert seen == [value]

    check()


def test_buffers_are_written_as_they_are() -> None:
    floats = memoryview(array("f", [0.5, -1.25]))
    assert call(COMPONENTS["floats"], "floats", lambda _: floats, []) == [0.5, -1.25]


class Later:
    """An answer that comes after ``turns`` polls."""

    def __init__(self, value: Any, turns: int) -> None:
        self.value, self.turns, self.cancelled = value, turns, False

    def turn(self) -> None:
        self.turns -= 1

    def done(self) -> bool:
        return self.turns <= 0

    def result(self) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_guest_sleeps_until_its_answer_is_there(turns: int) -> None:
    answer = Later([1, 2, 3], turns)
    assert call(COMPONENTS["words"], "words", lambda _: answer, [], blocking=True) == [1, 2, 3]
    assert answer.turns == 0


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("error", [ValueError("odd"), OutOfPages("none left"), KeyboardInterrupt()])
def test_an_exception_never_leaves_a_host_function(blocking: bool, error: BaseException) -> None:
    def host(_: Any) -> Any:
        raise error

    with pytest.raises(HostFunctionError, match="words") as caught:
        call(COMPONENTS["words"], "words", host, [], blocking=blocking)
    assert caught.value.__cause__ is error
    assert call(COMPONENTS["words"], "words", lambda value: value, [7]) == [7]


def test_an_answer_that_fails_is_reported_once() -> None:
    with pytest.raises(HostFunctionError):
        call(COMPONENTS["words"], "words", lambda _: Later(ValueError("odd"), 2), [], blocking=True)


def test_an_answer_of_the_wrong_type_is_reported() -> None:
    with pytest.raises(HostFunctionError):
        call(COMPONENTS["words"], "words", lambda _: "no list", [])


def suspended(answer: Later) -> tuple[ExportCall, Store]:
    linker = Linker(ENGINE)
    imports = Imports(linker, {})
    with linker.root() as root, root.add_instance("host") as instance:
        imports.add(instance, "words", lambda guest, values: answer, blocking=True)
    store = Store(ENGINE)
    yield_on_epoch(store)
    store.set_epoch_deadline(10**9)
    loading = Instantiation(imports, None, store, COMPONENTS["words"])
    assert loading.poll()
    running = ExportCall(imports, None, store, loading.instance, "run", ([1],))
    assert not running.poll()
    return running, store


def test_a_suspended_guest_can_be_dropped_and_its_wait_is_cancelled() -> None:
    answer = Later([], 9)
    running, store = suspended(answer)
    running.close()
    store.close()
    assert answer.cancelled


def test_a_guest_gives_way_at_a_tick_and_goes_on_afterwards() -> None:
    source = """
(component
  (core module $m (func (export "run") (result i32) (local $i i32)
    (loop $again
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $i) (i32.const 300000000))))
    (local.get $i)))
  (core instance $c (instantiate $m))
  (func (export "run") (result u32) (canon lift (core func $c "run"))))"""
    component = Component(ENGINE, wat2wasm(source))
    imports = Imports(Linker(ENGINE), {})
    store = Store(ENGINE)
    yield_on_epoch(store)
    ticker = Ticker(ENGINE)
    loading = Instantiation(imports, None, store, component)
    ticker.touch()
    while not loading.poll():
        ticker.touch()
    running = ExportCall(imports, None, store, loading.instance, "run", ())
    polls, start = 0, time.perf_counter()
    while not running.poll():
        assert running.blocked_on is None
        ticker.touch()
        polls += 1
    took = time.perf_counter() - start
    ticker.close()
    assert running.result == 300_000_000
    assert polls > took / 0.02, "slices are a millisecond or so"


def test_a_missing_export_is_an_error() -> None:
    imports = Imports(Linker(ENGINE), {})
    store = Store(ENGINE)
    yield_on_epoch(store)
    loading = Instantiation(imports, None, store, Component(ENGINE, wat2wasm("(component)")))
    assert loading.poll()
    with pytest.raises(WasmtimeError, match="no export 'run'"):
        ExportCall(imports, None, store, loading.instance, "run", ())


def test_the_clock_stands_still_while_nothing_runs() -> None:
    ticks = 0

    class Counting:
        def increment_epoch(self) -> None:
            nonlocal ticks
            ticks += 1

    counting: Any = Counting()
    ticker = Ticker(counting)
    for _ in range(100):
        ticker.touch()
        time.sleep(0.001)
    busy = ticks
    time.sleep(0.3)
    resting = ticks
    time.sleep(0.2)
    assert busy > 20
    assert ticks == resting, "it ticks with nobody there"
    ticker.touch()
    time.sleep(0.1)
    assert ticks > resting
    ticker.close()
    assert "pie-edge epochs" not in [thread.name for thread in threading.enumerate()]


class Guest:
    """Runs for ``slices`` turns; ``log`` gets its name each time."""

    def __init__(self, name: str, slices: int, log: list[str]) -> None:
        self.id, self.slices, self.log = name, slices, log

    def advance(self) -> bool:
        self.log.append(self.id)
        self.slices -= 1
        return self.slices > 0


def test_a_woken_guest_goes_before_those_that_used_up_their_slices() -> None:
    async def body() -> list[str]:
        log: list[str] = []
        schedule = Schedule(asyncio.get_running_loop())
        for name in "abc":
            schedule.wake(Guest(name, 30, log))
        while len(log) < 20:
            await asyncio.sleep(0)
        log.clear()
        schedule.wake(Guest("woken", 1, log))
        while len(log) < 3:
            await asyncio.sleep(0)
        return log

    assert asyncio.run(body())[0] == "woken"


def test_spent_guests_take_turns_and_the_loop_s_work_comes_between() -> None:
    async def body() -> str:
        log: list[str] = []
        schedule = Schedule(asyncio.get_running_loop())
        for name in "ab":
            schedule.wake(Guest(name, PATIENCE + 3, log))
        for _ in range(100):
            log.append("-")
            await asyncio.sleep(0)
        return "".join(log)

    log = asyncio.run(body())
    assert log.replace("-", "") == "ab" * (PATIENCE + 3)
    first, *slices = [part for part in log.split("----") if part.strip("-")]
    assert first.strip("-") == "ab" * PATIENCE, "both were woken, and so they stay for a few slices"
    assert [part.strip("-") for part in slices] == [*"ababab"], "two slices with too little between"
