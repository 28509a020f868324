"""The engine's process on the CUDA emulator: ``python -m tests.server.cuda_engine DEVICES``. It finds the stand-in for the driver
where the loader looks for libraries. SIGUSR1 breaks the first device, SIGUSR2 the second one, as an error of its memory would."""

from __future__ import annotations

import ctypes
import signal
import sys

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.api import LIBRARY
from pie_edge.backends.shared import examination
from pie_edge.server.engine.process import main
from tests.backend import cuda_emulated

ECC = 214
"""CUDA_ERROR_ECC_UNCORRECTABLE"""


def prepare(devices: int) -> None:
    driver = ctypes.CDLL(LIBRARY)
    driver.simt_devices(devices)
    for number, name in enumerate((signal.SIGUSR1, signal.SIGUSR2)):
        signal.signal(name, lambda *_, number=number: driver.simt_break(ECC, number))
    nvrtc.Compiler = lambda architecture, folder: cuda_emulated.ordinary  # type: ignore[assignment,misc]
    # What every opening would do for a minute, tests of the backend do.
    examination.check = lambda *_: None


if __name__ == "__main__":
    prepare(int(sys.argv[1]))
    main()
