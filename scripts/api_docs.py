"""Makes ``docs/api/`` from the WIT files and the Python SDK, so that it can't say anything else than they do."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from wit import Function, Interface, Member, Type, read_all  # noqa: E402

FOLDER = ROOT / "docs" / "api"
SDK = ROOT / "inferlets" / "sdk" / "python" / "inferlet"

# Of each function of the Pie paper: its group, its name, ours in Python, and what it is in WIT (an interface's function, a
# resource's method, a case of a variant, a field of a record).
PAPER = """
Allocate      | alloc_kvpage         | traits.alloc_kvpage         | allocate.alloc-kv-pages
Allocate      | dealloc_kvpage       | traits.dealloc_kvpage       | allocate.free-kv-pages
Allocate      | copy_kvpage          | traits.copy_kvpage          | allocate.copy-kv
Allocate      | export_kvpage        | traits.export_kvpage        | allocate.export-kv-pages
Allocate      | withdraw_kvpage      | traits.withdraw_kvpage      | allocate.withdraw-kv-pages
Allocate      | import_kvpage        | traits.import_kvpage        | allocate.import-kv-pages
Allocate      | alloc_emb            | traits.alloc_emb            | allocate.alloc-embeds
Allocate      | dealloc_emb          | traits.dealloc_emb          | allocate.free-embeds
Forward       | forward              | traits.forward              | forward-pages.forward
Forward       | forward_with_adapter | traits.forward_with_adapter | forward-pages.forward-with-adapter
Forward       | mask_kvpage          | traits.mask_kvpage          | forward-pages.mask-kv-page
InputText     | embed_txt            | traits.embed_txt            | input-text.embed-text
InputImage    | embed_img            | traits.embed_img            | input-image.embed-image
InputImage    | num_embs_needed      | traits.num_embs_needed      | input-image.image-embeds
OutputText    | get_next_dist        | traits.get_next_dist        | events.request.next-distribution
Tokenize      | tokenize             | model.encode                | model.encode
Tokenize      | detokenize           | model.decode                | model.decode
Tokenize      | get_vocabs           | model.vocabulary            | model.vocabulary
runtime       | version              | runtime.version             | runtime.version
runtime       | instance id          | runtime.instance_id         | runtime.instance-id
runtime       | arguments            | runtime.arguments           | language.run
models        | get                  | model.get                   | models.get
models        | list                 | model.all                   | models.all
models        | list by traits       | model.with_traits           | models.with-traits
model facts   | name                 | model.get                   | models.description.name
model facts   | traits               | traits.available_traits     | models.description.traits
model facts   | description          | model.get                   | models.description.description
model facts   | version              | model.get                   | models.description.version
model facts   | licence              | model.get                   | models.description.licence
model facts   | prompt template      | model.get                   | models.description.prompt-template
client, peers | send                 | session.send                | session.send
client, peers | receive              | session.receive             | events.request.receive
client, peers | broadcast            | messaging.broadcast         | messaging.broadcast
client, peers | subscribe            | messaging.subscribe         | messaging.subscription.create
store         | get                  | store.get                   | store.get
store         | set                  | store.set                   | store.set
store         | delete               | store.delete                | store.delete
store         | exists               | store.exists                | store.exists
store         | list                 | store.keys                  | store.list-keys
queues        | create               | traits.create_queue         | queues.queue.create
queues        | synchronize          | traits.synchronize          | events.request.synchronize
queues        | set priority         | traits.set_priority         | queues.queue.set-priority
"""
BEYOND = """
HTTP          | fetch                | http.request                | events.request.fetch
children      | launch               | runtime.launch              | children.child.launch
snapshots     | list                 | snapshots.names             | snapshots.all
snapshots     | delete               | snapshots.delete            | snapshots.delete
Introspective | attention layers     | model.attention_layers      | introspective.attention-layers
Introspective | forward, observed    | traits.forward_observed     | introspective.forward-observed
Introspective | attention mass       | traits.attention_mass       | events.request.attention-mass
"""
INTRODUCTION = """
Made by `scripts/generate-docs` from `inferlets/wit` and the Python SDK. `u32` is a whole number from 0 to 2³² − 1, `s32` one
with a sign, `f32` a floating-point number; times are nanoseconds, sizes bytes, lengths of texts characters, everything about
contexts and pages tokens. A function whose result is `result<…, error>` raises the error in Python: one of `inferlet.errors`,
by its code.

Functions return at once, except for the cases of [`events.request`](events.md), which are waited for: those are `async` in
Python.
"""


@dataclass(frozen=True)
class Row:
    group: str
    name: str
    python: str
    wit: str


def rows(table: str) -> list[Row]:
    return [Row(*(cell.strip() for cell in line.split("|"))) for line in table.strip().splitlines()]


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    interfaces = read_all(sorted((ROOT / "inferlets" / "wit").glob("*.wit")))
    python = {row.wit: row.python for row in [*rows(PAPER), *rows(BEYOND)]}
    made = {f"{name}.md": _page(one, python) for name, one in interfaces.items()}
    return made | {"README.md": _index(interfaces)}


def _index(interfaces: dict[str, Interface]) -> str:
    parts = ["# What an inferlet may call\n", INTRODUCTION.strip() + "\n"]
    parts += ["## The 42 functions of the Pie paper\n", *_table(rows(PAPER), interfaces)]
    parts += ["\n## Beyond them\n", *_table(rows(BEYOND), interfaces)]
    parts += ["\n## All interfaces\n", "| interface | |", "|---|---|"]
    parts += [f"| [`{name}`]({name}.md) | {_first_sentence(one.docs)} |" for name, one in sorted(interfaces.items())]
    return "\n".join(parts) + "\n"


def _table(table: list[Row], interfaces: dict[str, Interface]) -> Iterator[str]:
    yield "| trait or group | function | in Python | in WIT |"
    yield "|---|---|---|---|"
    for row in table:
        resolve(row.wit, interfaces)
        interface = row.wit.partition(".")[0]
        waits = "await " if signature(row.python).startswith("await ") else ""
        yield f"| {row.group} | {row.name} | `{waits}{row.python}` | [`{row.wit}`]({interface}.md) |"


def resolve(path: str, interfaces: dict[str, Interface]) -> Member | Function:
    """What a path names: ``interface.function``, ``interface.type.member``. Raises KeyError where there is no such thing."""
    interface, _, rest = path.partition(".")
    one = interfaces[interface]
    found: dict[str, Member | Function] = {function.name: function for function in one.functions}
    for kind in one.types:
        found |= {f"{kind.name}.{member.name}": member for member in kind.members}
        found |= {f"{kind.name}.{method.name}": method for method in kind.methods}
    return found[rest]


def signature(path: str) -> str:
    """``await module.function(…) -> …`` of the SDK, from its source. Raises KeyError where there is no such function."""
    module, _, name = path.partition(".")
    tree = ast.parse((SDK / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            waits = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
            gives = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
            return f"{waits}inferlet.{path}({ast.unparse(node.args)}){gives}"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("inferlet."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return signature(f"{node.module.removeprefix('inferlet.')}.{alias.name}")
    raise KeyError(f"the SDK has no {path}")


def _page(one: Interface, python: dict[str, str]) -> str:
    parts = [f"# `{one.name}`\n", one.docs + "\n"]
    for function in one.functions:
        parts.append(_function(one.name, function, python, "##"))
    for kind in one.types:
        parts.append(_type(one.name, kind, python))
    return "\n".join(parts)


def _function(owner: str, function: Function, python: dict[str, str], level: str) -> str:
    parts = [f"{level} `{function.name}`\n", f"```wit\n{function}\n```\n"]
    if function.docs:
        parts.append(_paragraphs(function.docs) + "\n")
    path = f"{owner}.{function.name}"
    if path in python:
        parts.append(f"In Python: `{signature(python[path])}`\n")
    return "\n".join(parts)


def _type(owner: str, kind: Type, python: dict[str, str]) -> str:
    parts = [f"## {kind.kind} `{kind.name}`\n"]
    if kind.docs:
        parts.append(_paragraphs(kind.docs) + "\n")
    for member in kind.members:
        typed = f": `{member.type}`" if member.type else ""
        said = "" if not member.docs else ". " + " ".join(member.docs.split("\n"))
        path = f"{owner}.{kind.name}.{member.name}"
        shown = f" In Python: `{signature(python[path])}`" if kind.name == "request" and path in python else ""
        parts.append(f"- `{member.name}`{typed}{said}{shown}")
    if kind.members:
        parts.append("")
    parts += [_function(f"{owner}.{kind.name}", method, python, "###") for method in kind.methods]
    return "\n".join(parts)


def _paragraphs(docs: str) -> str:
    """Errors in a paragraph of their own."""
    return f"\n{docs}".replace("\nErrors:", "\n\n**Errors:**").strip()


def _first_sentence(docs: str) -> str:
    text = " ".join(docs.split("\n"))
    return text.split(". ")[0].rstrip(".") + "."


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for file in FOLDER.glob("*.md"):
        if file.name not in made:
            file.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
