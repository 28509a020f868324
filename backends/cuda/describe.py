"""What ``pie-edge doctor`` tells of each CUDA device: the facts that decide what runs on it."""

from __future__ import annotations

from pie_edge.backends.cuda import numa
from pie_edge.backends.cuda.api import Driver, dotted
from pie_edge.backends.cuda.device import Facts, Gpu
from pie_edge.errors import BackendError


def describe() -> list[str]:
    """A line or two for each device of this machine, refused ones included; nothing without a driver."""
    try:
        driver = Driver()
        driver.call("start", "cuInit", 0)
        found = driver.device_names()
    except BackendError:
        return []
    lines = []
    for ordinal, name in enumerate(found):
        try:
            gpu = Gpu(driver, name)
        except BackendError as error:
            lines += [f"cuda:{ordinal}, {name}", f"  refused: {error}"]
            continue
        lines += [_title(gpu.facts), f"  {_abilities(gpu.facts)}; {numa.near(gpu.bus)}"]
        gpu.close()
    return lines


def _title(facts: Facts) -> str:
    kind = "software" if facts.software else f"compute capability {facts.architecture / 10}"
    return f"cuda:{facts.ordinal}, {facts.name}: {kind}, driver for CUDA {dotted(facts.driver)}"


def _abilities(facts: Facts) -> str:
    return f"{facts.processors} multiprocessors; {facts.memory / 2**30:.1f} of {facts.total / 2**30:.1f} GiB may be used now"
