"""The module that componentize-py builds the language component from.

Everything imported here is part of the component's memory from its first instruction on: a program that imports it pays
nothing, and there is no file system to import anything else from.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
from typing import NoReturn

import wit_world
from componentize_py_types import Err
from inferlet import _host, _runner, _wit
from inferlet._loop import Loop
from wit_world.imports import types

STANDARD_LIBRARY = """
    abc argparse array ast asyncio base64 bisect calendar cmath codecs collections collections.abc colorsys
    concurrent.futures concurrent.futures.thread contextlib contextvars copy csv dataclasses datetime decimal difflib
    email.message encodings.idna enum errno fnmatch fractions functools gc getpass gettext glob graphlib gzip hashlib
    heapq hmac html html.entities html.parser http io importlib importlib.resources inspect ipaddress itertools json
    keyword linecache locale logging math mimetypes numbers operator os os.path pathlib pickle pprint queue random re
    reprlib sched secrets shlex shutil signal stat statistics string struct tempfile textwrap threading time timeit token
    tokenize tomllib traceback types typing unicodedata unittest unittest.mock urllib.parse uuid warnings weakref
    xml.etree.ElementTree zlib zoneinfo
"""
SDK = """
    chat children embedding errors grammar http messaging model pages queues reasoning runtime session store tokenizer tools
    traits eta
"""


def _preload() -> None:
    for name in STANDARD_LIBRARY.split():
        importlib.import_module(name)
    for name in SDK.split():
        importlib.import_module(f"inferlet.{name}")
    # The folders of the build aren't there at run time: don't look into them at every import.
    sys.path.clear()
    sys.path_importer_cache.clear()
    # ``asyncio.run`` of a plain ``def main``: asyncio's own loops want sockets.
    asyncio.new_event_loop = asyncio.events.new_event_loop = Loop
    gc.collect()
    gc.freeze()


_abort = os.abort


def _say_and_abort() -> NoReturn:
    """The host takes an interpreter that ends without a word for one that has no memory left."""
    os.write(2, b"os.abort was called\n")
    _abort()


os.abort = _say_and_abort
_host.install(_wit.ComponentHost())
_preload()


class WitWorld(wit_world.WitWorld):
    def run(self, source: types.SourceFile, input: str) -> str:
        try:
            return _runner.run(source.path, source.text, input)
        except _runner.FailureError as failure:
            raise Err(wit_world.Failure(failure.code, failure.message, failure.traceback, failure.cause)) from None
