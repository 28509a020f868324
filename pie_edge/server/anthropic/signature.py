"""What a block of thinking is signed with, so that one that was changed is noticed when it comes back."""

from __future__ import annotations

import base64
import hashlib


def sign(thinking: str) -> str:
    """A checksum and no secret: a changed thought does no harm, but isn't what the model thought."""
    digest = hashlib.sha256(b"thinking\0" + thinking.encode("utf-8", "surrogatepass")).digest()
    return base64.b64encode(digest).decode()


def is_signed(thinking: str, signature: str) -> bool:
    return signature == sign(thinking)
