"""``layoutalg run``: saved kernels on tagged or given data, compared with their claims."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from codegen_cuda import cli_run_kernel, permute_layout
from codegen_cuda.build import compile_ptx
from codegen_cuda.cli_run import register
from codegen_cuda.run import expected_output
from layoutalg import TileLayout
from layoutalg.claim import Scalar
from layoutalg.claim_family import ClaimFamily, SizedBuffer, SizedMove, SizedSide
from layoutalg.errors import LayoutError

TRANSPOSE = """extern "C" __global__ void __launch_bounds__(256)
k(const unsigned* in, unsigned* out, int M, int N) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  if (x < N && y < M) out[(long long)x * M + y] = in[(long long)y * N + x];
}"""


def call(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    app.command("other")(lambda: None)
    return CliRunner().invoke(app, ["run", *map(str, arguments)], env={"COLUMNS": "120"})


@pytest.fixture(scope="module", params=["float32", "u8"])
def saved(request, tmp_path_factory):
    """A kernel of 4- and of 1-byte elements, where no element can hold its number."""
    source, destination = TileLayout.parse("S[(2,8,32):(256,32,1)]"), TileLayout.parse("S[(2,8,32):(256,1,8)]")
    kernel = permute_layout(source, destination, region="s,0:8,0:32", dtype=request.param).compile()
    folder = tmp_path_factory.mktemp("kernel")
    kernel.save(folder)
    return folder, kernel


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A transpose of any matrix, as two files."""
    folder: Path = tmp_path_factory.mktemp("family")
    shape = ("M", "N")
    claim = ClaimFamily(
        "k",
        "uint32",
        ("(N + 31)//32", "(M + 7)//8", 1),
        (32, 8, 1),
        0,
        (
            SizedBuffer("in", "input", "uint32", "M*N", 4),
            SizedBuffer("out", "output", "uint32", "M*N", 4),
            *(Scalar(name, 32, 1, 1000) for name in shape),
        ),
        (SizedMove("in", SizedSide("S[(M,N):(N,1)]", shape), "out", SizedSide("S[(M,N):(1,M)]", shape)),),
    )
    (folder / "k.claim.json").write_text(json.dumps(claim.to_json()))
    (folder / "k.ptx").write_text(compile_ptx(TRANSPOSE, arch="sm_90", name="k.cu").text)
    return folder


def test_a_saved_kernel_runs_and_is_what_its_claim_says(saved):
    folder, kernel = saved
    result = call(folder, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "every output is what the claim says" in result.output
    assert kernel.claim.entry in result.output


def test_json_says_the_same(saved):
    folder, kernel = saved
    result = call(folder, "--device", "cpu", "--json")
    found = json.loads(result.output)
    assert (result.exit_code, found["exit_code"], found["right"]) == (0, 0, True)
    assert found["outputs"][0]["elements"] == kernel.claim.buffer("dst").count
    # 512 elements of one byte take two runs to be told apart, 512 words one.
    assert found["runs"] == (2 if kernel.claim.width == 1 else 1)


def test_given_data_come_out_as_numpy_moves_them(saved, tmp_path):
    folder, kernel = saved
    kind = "u1" if kernel.claim.width == 1 else "f4"
    data = np.random.default_rng(0).integers(0, 200, kernel.claim.buffer("src").count).astype(kind)
    np.save(tmp_path / "in.npy", data)
    result = call(folder, "--device", "cpu", "--data", tmp_path / "in.npy", "--out", tmp_path / "out.npy")
    assert result.exit_code == 0, result.output
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == data.dtype
    assert (found == expected_output(kernel.claim, data)).all()


def test_a_kernel_of_any_size_runs_for_the_sizes_that_are_set(family):
    result = call(
        family / "k.ptx", family / "k.claim.json", "--set", "M=31", "--set", "N=33", "--device", "cpu", "--json"
    )
    found = json.loads(result.output)
    assert found["right"], found
    assert found["scalars"] == {"M": 31, "N": 33}
    assert found["grid"] == [2, 4, 1]


def test_a_wrong_kernel_is_told_from_a_right_one(family, tmp_path):
    untransposed = TRANSPOSE.replace("x * M + y", "y * N + x")
    (tmp_path / "k.ptx").write_text(compile_ptx(untransposed, arch="sm_90", name="k.cu").text)
    result = call(tmp_path / "k.ptx", family / "k.claim.json", "--set", "M=9", "--set", "N=5", "--device", "cpu")
    assert result.exit_code == 1
    # out[1] is element (1, 0) of the input, which is number 5 of it.
    assert "out[1] holds 0x00000001, expected 0x00000005 (in[5])" in result.output


def test_places_that_stay_unwritten_are_wrong(family, tmp_path):
    text = (family / "k.ptx").read_text()
    (tmp_path / "k.ptx").write_text(text.replace("st.global", "// st.global"))
    result = call(tmp_path / "k.ptx", family / "k.claim.json", "--set", "M=9", "--set", "N=5", "--device", "cpu")
    assert result.exit_code == 1
    assert "out[0] was not written, expected 0x00000000 (in[0])" in result.output


def test_a_defect_is_named_with_its_thread(family, tmp_path):
    text = (family / "k.ptx").read_text()
    (tmp_path / "k.ptx").write_text(text.replace("@%p3 bra", "// @%p3 bra"))
    assert "@%p3 bra" in text
    result = call(tmp_path / "k.ptx", family / "k.claim.json", "--set", "M=9", "--set", "N=5", "--device", "cpu")
    assert result.exit_code == 1
    assert "out-of-bounds" in result.output
    assert "thread (" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "M=5"], "needs a value for N"),
        (["--set", "M=5", "--set", "N=1001"], "lies outside"),
        (["--set", "M=5", "--set", "N=x"], "write NAME=NUMBER"),
        (["--set", "K=5"], "the kernel's sizes are"),
        (["--device", "tpu", "--set", "M=1", "--set", "N=1"], "choose 'auto'"),
        (["--set", "M=1", "--set", "N=1", "--data", "other=x.npy"], "the inputs are in"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_message(family, arguments, message):
    result = call(family / "k.ptx", family / "k.claim.json", *arguments)
    assert isinstance(result.exception, LayoutError)
    assert message in str(result.exception)


def test_files_that_are_no_kernel_are_said_in_one_message(family, tmp_path):
    (tmp_path / "k.claim.json").write_text("{")
    (tmp_path / "empty.npy").write_bytes(b"")
    for arguments, kind in (
        ([tmp_path], LayoutError),
        ([tmp_path / "none"], OSError),
        ([family / "k.ptx"], LayoutError),
        ([family / "k.ptx", tmp_path / "k.claim.json"], LayoutError),
        ([family / "k.claim.json", family / "k.ptx", "--set", "M=1", "--set", "N=1", "--data", tmp_path / "empty.npy"],
         LayoutError),
    ):  # fmt: skip
        result = call(*arguments)
        assert isinstance(result.exception, kind), (arguments, result.exception)


def test_a_gpu_gets_the_same_arguments_and_two_backgrounds(family, monkeypatch):
    seen = []

    def pretend(image, entry, *, grid, block, args, shared_bytes):
        source, target, rows, columns = args
        seen.append((len(image) > 0, entry, grid, block, shared_bytes, int(target[0])))
        assert (rows.dtype, columns.dtype) == (np.int32, np.int32)
        target.view(np.uint32)[:] = source.view(np.uint32).reshape(rows, columns).T.reshape(-1)

    monkeypatch.setattr(cli_run_kernel, "launch", pretend)
    files = (family / "k.ptx", family / "k.claim.json")
    result = call(*files, "--set", "M=9", "--set", "N=5", "--device", "gpu", "--json")
    found = json.loads(result.output)
    assert (found["right"], found["device"], found["runs"]) == (True, "GPU", 2)
    assert seen == [(True, "k", (1, 2, 1), (32, 8, 1), 0, 0xA5), (True, "k", (1, 2, 1), (32, 8, 1), 0, 0x5A)]
    monkeypatch.setattr(cli_run_kernel, "launch", lambda *_, **__: None)
    nothing = call(*files, "--set", "M=9", "--set", "N=5", "--device", "gpu")
    assert nothing.exit_code == 1
    assert "out[0] holds 0xa5a5a5a5, expected 0x00000000 (in[0])" in nothing.output
