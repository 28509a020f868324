"""Modules that lie beside the program: their source comes from the host, on demand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import CodeType, ModuleType

from inferlet._host import host
from inferlet._source import compile_file


class _Loader(InspectLoader):
    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text

    def get_source(self, fullname: str) -> str:
        return self._text

    def is_package(self, fullname: str) -> bool:
        return self._path.endswith("__init__.py")

    def get_code(self, fullname: str) -> CodeType:
        return compile_file(self._path, self._text)


class _Finder(MetaPathFinder):
    """Comes last: a program can't shadow the standard library or the SDK by accident."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = host().find_module(fullname)
        if file is None:
            return None
        return spec_from_loader(fullname, _Loader(*file), origin=file[0])


def install() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
