"""Priors of kernels from tables, and settings of two pools from the recipes that ran them."""

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
from infer_jax.calibration.pooled.readers.inferencex import KEY, started_as
from infer_jax.catalog import load_system
from infer_jax.catalog.published import operator_priors
from infer_jax.catalog.published.tables import tables
from infer_jax.errors import InputError
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
# of an H200's data sheet (hw_profiles/h200_sxm.toml)
FLOPS, BANDWIDTH = 989.4e12, 4.8e12


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


UNBOUNDED = float(Deployment.of().max_sequences)


def pools(prefill: float, decode: float, drafts: float = 0.0) -> Pools:
    """Decode instances of 8 GPUs with tensor parallel attention and shared experts."""
    return Pools.of(
        prefill=Deployment.of(tp=1, attention_dp=4, ep=4),
        decode=Deployment.of(tp=8, ep=8, drafts=drafts),
        prefill_copies=prefill,
        decode_copies=decode,
    )


def settings(found: Pools, **changes) -> tuple[float, float]:
    row = {"system": "b200_sxm", "model": "deepseek-r1", "precision": "fp4", "load": 450.0}
    row |= {"lengths": (1024.0, 1024.0), **changes}
    decode = started_as(found, **row).decode
    assert isinstance(decode, Deployment)
    return float(decode.max_sequences), float(decode.drafts)


def test_a_run_has_the_limit_and_the_drafts_of_its_recipe():
    # recipes/trtllm/b200-fp4/1k1k: stp/ctx1_gen6_tep8_batch64, mtp/ctx1_gen5_tep8_batch32_..._mtp3
    assert settings(pools(1.0, 6.0)) == (64.0, 0.0)
    assert settings(pools(1.0, 5.0, drafts=1.0), load=180.0) == (32.0, 3.0)
    # of two versions of one recipe that with more room: GB200, 4 bits, batch 8 and 32
    drafting = pools(1.0, 4.0, drafts=1.0)
    assert settings(drafting, system="gb200_nvl72", load=8.0) == (32.0, 3.0)


@pytest.mark.parametrize(
    "other", [{"load": 451.0}, {"system": "h100_sxm"}, {"model": "llama-3.1-8b"}]
)
def test_a_run_without_a_recipe_is_as_its_row_says(other):
    assert settings(pools(1.0, 6.0), **other) == (UNBOUNDED, 0.0)
    assert settings(pools(2.0, 6.0)) == (UNBOUNDED, 0.0)


def test_every_recipe_is_of_known_form():
    every = tables("pool_recipes")
    assert len(every) > 20
    for table in every.values():
        for key, loads in table.items():
            assert KEY.fullmatch(key), key
            assert loads == sorted(set(loads)) and loads[0] >= 1
