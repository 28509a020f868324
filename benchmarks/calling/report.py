"""What ``benchmarks.agents`` tells: tables, and the curves of ratio against calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.calling.compare import INFERLET, PEER, REQUESTS, Point
from benchmarks.calling.ladder import BASELINE
from benchmarks.harness import Summary, ratio, table

NAMES = {"react": "ReACT", "codeact": "CodeACT", "swarm": "Swarm"}


@dataclass
class Findings:
    """Everything that was measured. ``used`` is tokens by side, ``ladder`` seconds by rung and number of agents."""

    sides: Mapping[str, str]
    points: list[Point] = field(default_factory=list)
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    agreement: str = ""
    ladder: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def peers(findings: Findings) -> list[str]:
    return [name for name in (REQUESTS, PEER) if name in findings.sides]


def render(findings: Findings) -> str:
    notes = [f"- *{name}*: {told}" for name, told in findings.sides.items()]
    parts = ["\n".join(notes), *_shapes(findings), _tokens(findings)]
    if findings.ladder:
        parts += ["### The ladder of function calls", _ladder(findings.ladder)]
    return "\n\n".join(parts) + "\n"


def _shapes(findings: Findings) -> list[str]:
    parts = []
    together = sorted({point.together for point in findings.points})
    for count in together:
        title = "One agent, seconds" if count == 1 else f"{count} agents at once, agents a second"
        parts += [f"### {title}", _points(findings, [p for p in findings.points if p.together == count])]
    return parts


def _points(findings: Findings, points: Sequence[Point]) -> str:
    others = peers(findings)
    rows = []
    for point in points:
        cells = [_figure(point, name) for name in (INFERLET, *others)]
        ratios = [_ratio(point, name) for name in others]
        rows.append([NAMES[point.shape], str(point.calls), *cells, *ratios])
    header = ("agent", "calls", INFERLET, *others, *(f"{name} ÷ inferlet" for name in others))
    return table(header, rows)


def _figure(point: Point, name: str) -> str:
    seconds = Summary.of(point.seconds[name]).median
    return f"{seconds:.2f}" if point.together == 1 else f"{point.together / seconds:.2f}"


def _ratio(point: Point, name: str) -> str:
    """With extremes, where there were several rounds."""
    found = ratio(point.seconds[name], point.seconds[INFERLET])
    return found.show(2) if len(point.seconds[name]) > 1 else f"{found.median:.2f}"


def _tokens(findings: Findings) -> str:
    told = [
        f"{name} {count['forwarded']:,}" + (f" and {count['cached']:,} found" if count.get("cached") else "")
        for name, count in findings.used.items()
    ]
    return f"Tokens forwarded in all: {', '.join(told)}. Agents that wrote what the inferlet did: {findings.agreement}."


def _ladder(ladder: Mapping[str, Mapping[int, Sequence[float]]]) -> str:
    agents = list(ladder[BASELINE])
    rows = []
    for rung, found in ladder.items():
        rates = [f"{count / Summary.of(found[count]).median:.2f}" for count in agents]
        gains = [f"{ratio(ladder[BASELINE][count], found[count]).median:.2f}" for count in agents]
        rows.append([rung, *rates, *gains])
    header = ("agents a second, and × baseline", *map(str, agents), *(f"× at {count}" for count in agents))
    return table(header, rows)


def draw(findings: Findings, path: Path) -> None:
    """Ratio against calls: of one agent's latency, and of the throughput of several."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    together = sorted({point.together for point in findings.points})
    figure, axes = pyplot.subplots(1, len(together), figsize=(9, 4), dpi=100, sharey=True, layout="constrained")
    for axis, count in zip(axes, together, strict=True):
        for name, line in zip(peers(findings), ("-", "--"), strict=False):
            for shape, colour in zip(NAMES, ("C0", "C1", "C2"), strict=True):
                points = [p for p in findings.points if (p.shape, p.together) == (shape, count)]
                ratios = [ratio(p.seconds[name], p.seconds[INFERLET]).median for p in points]
                calls, label = [p.calls for p in points], f"{NAMES[shape]}, {name}"
                axis.plot(calls, ratios, line, color=colour, marker="o", markersize=3, label=label)
        axis.axhline(1, color="grey", linewidth=0.8)
        title = "latency of one agent" if count == 1 else f"throughput of {count} agents"
        axis.set(title=title, xlabel="calls", xticks=sorted({p.calls for p in findings.points}))
    axes[0].set_ylabel("inferlet: times as good as …")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    figure.savefig(path, metadata={"Software": None})
