"""One type for both containers: a model's metadata and its tensors, still on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pie_edge.errors import BadCheckpoint, ModelNotFound, TokenizerError, Unsupported
from pie_edge.weights import gguf, safetensors
from pie_edge.weights.grouped import gather
from pie_edge.weights.stacked import AnyTensor, stack
from pie_edge.weights.tensor import Source, Tensor

Container = Literal["gguf", "safetensors"]

JSON_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "1_Pooling/config.json",
)
"""Files beside safetensors weights that ``Checkpoint.metadata`` has, decoded, under their names: objects,"""
LIST_FILES = ("modules.json",)
"""and lists."""
PATH_FILES = ("tokenizer.json", "tokenizer.model", "chat_template.jinja")
"""Files that it has as paths: their readers want the file."""
FILES = (*JSON_FILES, *LIST_FILES, *PATH_FILES)
_DECODER = "model."
"""What names of a model's own tensors begin with, where the head is beside it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model on disk. ``metadata`` is the GGUF's keys, or for safetensors the files beside the weights by name:
    decoded JSON for ``JSON_FILES`` and ``LIST_FILES``, a ``Path`` for ``PATH_FILES``; a file that isn't there has no key."""

    path: Path
    container: Container
    metadata: Mapping[str, Any]
    tensors: Mapping[str, AnyTensor]
    sources: tuple[Source, ...]

    @property
    def architecture(self) -> str:
        """``general.architecture``, or config.json's ``model_type``."""
        if self.container == "gguf":
            key, value = (
                "general.architecture",
                self.metadata.get("general.architecture"),
            )
        elif "config.json" in self.metadata:
            key, value = "model_type", self.metadata["config.json"].get("model_type")
        else:
            raise BadCheckpoint(
                f"{self.path} has no config.json beside it, so its architecture is unknown; add the file"
            )
        if not isinstance(value, str) or not value:
            raise BadCheckpoint(f"{self.path}: {key!r} is {value!r}; the name of an architecture is required")
        return value

    @property
    def config(self) -> Mapping[str, Any]:
        """What describes the model itself: all of a GGUF's keys, or config.json (empty if there is none)."""
        return self.metadata if self.container == "gguf" else self.metadata.get("config.json", {})

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def check_tokenizer(self) -> None:
        """Raises TokenizerError if nothing says how text becomes tokens; whether that can be read is not looked at."""
        if self.container == "gguf" and "tokenizer.ggml.model" not in self.metadata:
            raise TokenizerError(
                f"{self.path} carries no tokenizer (tokenizer.ggml.model is missing); fetch or convert the model again"
            )
        if self.container == "safetensors" and "tokenizer.json" not in self.metadata:
            raise TokenizerError(
                f"{self.path} has no tokenizer.json beside it; add the file, or import a GGUF, which carries one"
            )

    def release(self) -> None:
        """The weights are on the device: their file's pages need no memory any more."""
        for source in self.sources:
            source.release()

    def close(self) -> None:
        """Let go of the files. Views that somebody still holds stay valid."""
        for source in self.sources:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


class LazyFiles(Mapping[str, Any]):
    """The known files of a folder by name, each read when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        readers: dict[str, Callable[[Path], Any]] = dict.fromkeys(JSON_FILES, safetensors.read_json)
        readers |= dict.fromkeys(LIST_FILES, safetensors.read_list)
        readers |= dict.fromkeys(PATH_FILES, lambda path: path)
        self._folder = folder
        self._readers = {name: read for name, read in readers.items() if (folder / name).is_file()}
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._readers[name](self._folder / name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:
        return name in self._readers


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file (any part of a split one), a safetensors file or index, or a folder that holds one model.

    The content decides, not the name. Nothing but headers is read.
    """
    path = find_weights(path)
    kind = sniff(path)
    if kind == "gguf":
        found = gguf.read_gguf(path)
        return Checkpoint(path, "gguf", found.metadata, stack(found.tensors), found.sources)
    read = safetensors.read_index if kind == "index" else safetensors.read_safetensors
    weights = read(path)
    files = LazyFiles(path.parent)
    tensors = stack(gather(_with_prefix(weights.tensors), files.get("config.json", {})))
    return Checkpoint(path, "safetensors", files, tensors, weights.sources)


def _with_prefix(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A decoder saved by itself, as those that embed are, has names that begin with nothing."""
    if "embed_tokens.weight" not in tensors or any(name.startswith(_DECODER) for name in tensors):
        return tensors
    return {_DECODER + name if name != "lm_head.weight" else name: tensor for name, tensor in tensors.items()}


def find_weights(path: Path) -> Path:
    """The file to open for ``path``: itself, or the one model of a folder."""
    try:
        if not path.is_dir():
            return path
        names = sorted(entry.name for entry in path.iterdir())
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"{str(path)!r} can't be read: {error}; check the path") from None
    indexes = [name for name in names if name.endswith(safetensors.INDEX_SUFFIX)]
    # A split model counts as its first part, an indexed one as its index.
    ggufs = [name for name in names if name.endswith(".gguf") and gguf.split_paths(path / name)[0].name == name]
    single = [] if indexes else [name for name in names if name.endswith(".safetensors")]
    found = ggufs + indexes + single
    if len(found) == 1:
        return path / found[0]
    if not found:
        raise ModelNotFound(f"{path} holds no *.gguf or *.safetensors file; give a folder with one, or the file itself")
    raise ModelNotFound(f"{path} holds {len(found)} models: {', '.join(found)}; give the path of one of them")


def sniff(path: Path) -> Literal["gguf", "safetensors", "index"]:
    """What a file is by its first bytes; says what is wanted when it is neither container."""
    source = Source(path)
    head = source.data[:64]
    source.close()
    if head.startswith(gguf.MAGIC):
        return "gguf"
    if path.name.endswith(safetensors.INDEX_SUFFIX) and head.lstrip().startswith(b"{"):
        return "index"
    if safetensors.looks_like_safetensors(head):
        return "safetensors"
    wanted = "a GGUF or safetensors file is wanted"
    if head.startswith(b"version https://git-lfs"):
        raise BadCheckpoint(f"{path} is a Git LFS pointer, not the file itself; run `git lfs pull` where it came from")
    if head.startswith((b"PK\3\4", b"\x80\2")):
        raise Unsupported(f"{path} is a pickled PyTorch file, which could run any code; {wanted}: convert it")
    if head[:4] in (b"lmgg", b"tjgg", b"fmgg", b"algg"):
        raise Unsupported(f"{path} is a GGML file from before GGUF; {wanted}: convert it")
    raise BadCheckpoint(f"{path} starts with {head[:8]!r}; {wanted}")
