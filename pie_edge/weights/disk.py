"""Errors of this machine's disk among those of a fetch: they want room or rights, not another try at the network."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

_OF_DISK = frozenset(
    number
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EFBIG", "EIO", "ENAMETOOLONG")
    if (number := getattr(errno, name, None)) is not None
)
_SAID = re.compile(r"\[Errno (\d+)\]")


def check_room(folder: Path, nbytes: int) -> None:
    """Raises the OSError of a full disk before anything is fetched to it."""
    if shutil.disk_usage(folder).free < nbytes:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {nbytes / 2**20:,.0f} MiB", str(folder))


def disk_error(error: BaseException) -> OSError | None:
    """The disk's error that ``error`` is or comes from."""
    found: BaseException | None = error
    while found is not None:
        # Errors of connections are OSErrors, too, and with some of the same numbers: they have no file.
        if isinstance(found, OSError) and found.errno in _OF_DISK and not isinstance(found, ConnectionError):
            return found
        found = found.__cause__ or found.__context__
    return None


def disk_error_said(text: str, where: str) -> OSError | None:
    """The same, of a program that only printed its error."""
    for number in map(int, _SAID.findall(text)):
        if number in _OF_DISK:
            return OSError(number, os.strerror(number), where)
    return None
