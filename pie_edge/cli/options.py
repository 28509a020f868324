"""Options that several commands have, of the settings that say how a server answers."""

from __future__ import annotations

from typing import Annotated

import typer

Pooling = Annotated[
    str | None, typer.Option(help="How vectors of texts are pooled: auto, mean, last, cls or none. [default: auto]")
]
GenerationConfig = Annotated[
    bool | None,
    typer.Option(
        "--generation-config/--no-generation-config",
        help="Sample as the checkpoint recommends where a request doesn't say how. [default: yes]",
    ),
]
