"""Imported by tests whose kernels run on the emulator: skips them, with the reason, where it can't be built."""

import pytest

from tests.simt.build import COMPILER, ON_CARD, available

if not ON_CARD and not available():
    pytest.skip(f"the emulator of kernels takes {COMPILER} on x86-64", allow_module_level=True)
