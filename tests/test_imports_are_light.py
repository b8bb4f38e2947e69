"""``import layoutalg`` costs a compiler writer next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("sympy", "z3", "typer", "rich", "matplotlib", "verify", "codegen_cuda")
SECONDS = 0.1
ATTEMPTS = 8

# numpy comes first, so that the second interval is what layoutalg adds to it.  Processor time, not the clock: what
# other processes of a busy machine take is none of this library's doing.
MEASURE = """
import json, sys, time
start = time.process_time()
import numpy
middle = time.process_time()
import layoutalg
end = time.process_time()
print(json.dumps({"numpy": middle - start, "added": end - middle, "modules": sorted(sys.modules)}))
"""


def measure() -> dict:
    # The first run writes the byte code that every installed package has; the later ones measure.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", MEASURE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def test_importing_layoutalg_loads_nothing_heavy():
    loaded = set(measure()["modules"])
    assert "layoutalg" in loaded
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))


def test_the_command_line_needs_no_solver_until_something_is_proved():
    code = "import sys; sys.modules['z3'] = None; import codegen_cuda.cli, codegen_cuda.run, verify.kernel"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_layoutalg_adds_at_most_a_tenth_of_a_second_to_numpy():
    # The fastest of several: a busy machine only ever adds time.
    costs = []
    for _ in range(ATTEMPTS):
        costs.append(measure())
        if costs[-1]["added"] <= SECONDS:
            break
    assert min(cost["added"] for cost in costs) <= SECONDS, [(cost["numpy"], cost["added"]) for cost in costs]
