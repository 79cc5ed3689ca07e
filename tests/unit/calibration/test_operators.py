"""Priors of kernels: tables written from known coefficients are fitted back, bad ones refused."""

import tomllib
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from infer_jax.calibration.pooled import operators
from infer_jax.calibration.pooled.operator_laws import LAWS
from infer_jax.calibration.pooled.operators import (
    data_folder,
    fits,
    operator_tables,
    package_version,
    pool_priors,
    toml,
)
from infer_jax.catalog import load_system
from infer_jax.catalog.published import operator_priors
from infer_jax.errors import InputError

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
# of an H200's data sheet (hw_profiles/h200_sxm.toml)
FLOPS, BANDWIDTH, LINK = 989.4e12, 4.8e12, 450e9


def write(root: Path, place: str, **columns: object) -> Path:
    """A table of the wheel's, of an H200: ``place`` is family/engine/version/name."""
    path = root / "systems" / "data" / "h200_sxm" / f"{place}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


def longer(a: np.ndarray, b: np.ndarray, p: float = 3.0) -> np.ndarray:
    return b * ((a / b) ** p + 1.0) ** (1.0 / p)


def gemm(root: Path, version: str, most: int = 8192, **changed: object) -> Path:
    """Products in bfloat16 that read at 0.8 of the data sheet and compute at 0.75."""
    sizes = [2**i for i in range(14) if 2**i <= most]
    m, n, k = np.asarray(list(product(sizes, (2048, 7168, 16384), (2048, 4096, 7168))), float).T
    seconds = 4e-6 + longer(2.0 * n * k / (0.8 * BANDWIDTH), 2.0 * m * n * k / (0.75 * FLOPS))
    seconds = seconds + 0.5 * m * (n + k) * 2.0 / BANDWIDTH
    # a slower kernel of every shape does not count
    m, n, k = (np.tile(x.astype(int), 2) for x in (m, n, k))
    latency = 1e3 * np.append(seconds, 1.5 * seconds)
    table = {"gemm_dtype": ["bfloat16"] * len(m), "m": m, "n": n, "k": k, "latency": latency}
    return write(root, f"gemm/vllm/{version}/gemm_perf", **(table | changed))


def test_bad_tables(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no systems/data in it"):
        data_folder(tmp_path)
    (tmp_path / "systems" / "data").mkdir(parents=True)
    with pytest.raises(InputError, match="no measured operators"):
        operator_tables(data_folder(tmp_path))
    monkeypatch.setattr(operators, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"aisimulate is 'not installed'.*pip install"):
        data_folder()
    count = 2 * 14 * 9
    for column, bad, said in (
        ("k", ["wide"] * count, "k is 'text'; allowed: a column of numbers"),
        ("m", [-1] * count, "row 0, m is -1.*at least 0"),
        ("latency", [0.0] * count, r"row 0, latency is 0; allowed: a number above 0"),
        ("latency", [float("nan")] * count, "row 0, latency is nan"),
    ):
        changed: dict[str, Any] = {column: bad}
        gemm(tmp_path, "1.0", **changed)
        with pytest.raises(InputError, match=said):
            operator_tables(data_folder(tmp_path))
    path = write(tmp_path, "gemm/vllm/1.0/gemm_perf", m=[1], n=[2], gemm_dtype=["fp8"])
    said = "k is missing; allowed: a column among m, n, gemm_dtype"
    with pytest.raises(InputError, match=said):
        operator_tables(data_folder(tmp_path))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="a damaged table"):
        operator_tables(data_folder(tmp_path))


@pytest.mark.parametrize("name", LAWS)
def test_seconds_grow_with_times_and_fall_with_rates(name):
    """Signs of slopes, at ordinary rows and at one token or one rank."""
    law, hardware = LAWS[name], load_system("h200_sxm").hardware
    names = ("rows", "outputs", "inputs", "held", "uses", "outer", "inner", "heads", "kv_heads",
             "width", "tokens", "sequences", "new", "ranks", "size")  # fmt: skip
    for many in (1.0, 512.0):
        row = dict.fromkeys(names, many) | {"bytes": 2.0, "bits": 16.0, "dense": 1.0, "tile": 64.0}
        row = {key: np.asarray([x]) for key, x in row.items()}
        slopes = jax.grad(lambda x, row=row: law.seconds(x, row, hardware)[0])(law.start)
        for key, slope in slopes.items():
            rate = key not in ("launch", "moves", "expert_rows", "expert_moves", "hop")
            assert np.isfinite(slope) and (slope <= 0.0 if rate else slope >= 0.0), key


@pytest.mark.slow
@pytest.mark.skipif(find_spec("aisimulate_core") is None, reason="aisimulate is not installed")
def test_shipped_file_is_what_the_command_writes():
    folder = data_folder()
    with jax.enable_x64(True):
        text = toml(pool_priors(fits(operator_tables(folder))), package_version(folder))
    found = tomllib.loads(text)["coefficients"]
    assert found.keys() == operator_priors().keys()
    for name, prior in operator_priors().items():
        assert found[name]["tables"] == prior.tables
        assert found[name]["value"] == pytest.approx(prior.value, rel=0.01)
        assert found[name]["spread"] == pytest.approx(prior.spread, rel=0.05, abs=0.005)
