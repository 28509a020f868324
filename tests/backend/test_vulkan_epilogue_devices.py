"""Epilogues on software devices of other subgroup sizes, under the validation layers, and as modules by themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backends.vulkan.epilogue_kernels import assemble
from pie_edge.program.nodes import NODES
from pie_edge.program.ops import Role
from pie_edge.sampling import parse
from pie_edge.sampling.dialects.kernel import Kernel
from pie_edge.sampling.dialects.planner import plan
from tests.pure.test_sampling_nodes import CASES, VOCABULARY
from tests.support.epilogues import HIDDEN, Wire

HERE = Path(__file__).parent
EPILOGUES = [str(HERE / "test_epilogues_on_devices.py"), str(HERE / "test_vulkan_epilogue_wide.py")]
SOME = "vulkan and (any_epilogue or rounds or any_length or seven_rows or sampled or gumbel_max or entropy or cumsum)"

pytestmark = pytest.mark.timeout(900)  # a driver that has compiled nothing yet, on a machine that has other work


def run_pytest(**environment: str) -> str:
    """The output of some of the tests in a process of their own: a driver reads its settings once."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-k", SOME, *EPILOGUES]
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=os.environ | environment, capture_output=True, text=True, timeout=860
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("bits", [128, 512])
def test_epilogues_agree_at_other_subgroup_sizes(bits: int) -> None:
    """Mesa's software device takes 32-bit lanes of vectors this long: 4, 8 (what other tests run on) or 16."""
    run_pytest(LP_NATIVE_VECTOR_WIDTH=str(bits))


@pytest.mark.slow
def test_epilogues_give_the_validation_layers_nothing_to_say() -> None:
    if not Path("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json").exists():
        pytest.skip("the Khronos validation layers aren't installed (Debian: vulkan-validationlayers)")
    said = run_pytest(
        VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation",
        VK_LAYER_ENABLES="VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
    )
    assert "Validation" not in said, said[said.index("Validation") :][:3000]


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="spirv-val isn't installed (Debian: spirv-tools)")
def test_assembled_modules_are_valid_spirv(tmp_path: Path) -> None:
    modules = []
    for name, operands, attributes in CASES[::3]:
        wire = Wire()
        node = wire.add(name, *(wire.parameter(dtype, shape) for dtype, shape, _ in operands), **attributes)
        text = wire.text(*([node, result] for result in range(len(NODES[name].results))))
        program = parse(text, vocabulary=VOCABULARY, rows=2, hidden=HIDDEN).program(6)
        made = plan(program)
        places = dict.fromkeys(
            (value.name for role in (Role.INPUT, Role.OUTPUT) for value in program.by_role(role)), 64
        )
        for step in made.steps:
            if isinstance(step, Kernel):
                modules.append(tmp_path / f"{len(modules)}-{name}.spv")
                modules[-1].write_bytes(assemble(step, {**places, **made.starts}, made.slots, 64, preserve=True))
    for module in modules:
        done = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", module], capture_output=True, text=True)
        assert done.returncode == 0, f"{module.name}: {done.stdout}{done.stderr}"
