"""The recipe of docs/add-a-kind-of-attention.md, taken with a kind that is defined here.

The kind is multi-query attention over pairs of tokens: two tokens share one entry of the cache.
At one token an entry it is grouped-query attention with one KV head, and every answer must be that
of the built-in kind; at two it keeps and reads half.
"""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from infer_jax import footprint
from infer_jax.catalog import load_system
from infer_jax.estimators import Offload, registry
from infer_jax.physics import attention as att, decoder, layers
from infer_jax.physics.attention.kind import GROUPED, Cut, Kind, Operands
from infer_jax.physics.attention.row import blank
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import (
    Architecture,
    Block,
    Dense,
    Format,
    GroupedQuery,
    Plan,
    Spec,
    Workload,
    number,
    part,
    spec,
)

pytestmark = pytest.mark.usefixtures("x64")

PAGE = Path(__file__).parents[2] / "docs" / "add-a-kind-of-attention.md"
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@spec
class Paired(Spec):
    """One key and value for every ``tokens`` tokens."""

    query_heads: jax.Array = number("query heads", kind="count")
    head_width: jax.Array = number("width of a head", kind="count")
    tokens: jax.Array = number("tokens of an entry", kind="count", low=1)
    weights: Format = part(
        "format of the projections", default_factory=lambda: Format.of(bytes=2.0, bits=16.0)
    )


class PairedLayer(Kind[Paired]):
    """What the recipe asks for, and nothing else."""

    core = GROUPED

    @property
    def names(self):
        """The kernels of its projections."""
        return "qkv", "output"

    def matrices(self, width):
        """[Q, K, V] and O."""
        a = self.attention
        queries = a.query_heads * a.head_width
        return (Matrix(queries + 2.0 * a.head_width, width), Matrix(width, queries))

    @property
    def output_width(self):
        """Queries, one key, one value."""
        return (self.attention.query_heads + 2.0) * self.attention.head_width

    def numbers(self, cache, activations):
        """A share of an entry a token; 4 n_q d FLOP a pair of query and entry."""
        a = self.attention
        pair = 4.0 * a.query_heads * a.head_width / a.tokens
        return blank()._replace(
            cache=2.0 * a.head_width * cache.bytes / a.tokens, absorbed=pair, expanded=pair
        )

    @property
    def heads(self):
        """Query heads, and one KV head."""
        return self.attention.query_heads, 1.0

    @property
    def cuts(self):
        """The output projection, by its inputs."""
        a = self.attention
        return (Cut(a.query_heads * a.head_width, a.weights.columns),)

    def of_rank(self, tp):
        """Its share of query heads."""
        return self.attention.replace(query_heads=self.attention.query_heads / tp)

    def dealt(self, width):
        """Queries split, the one key and value copied."""
        a = self.attention
        split = 2.0 * width * a.query_heads * a.head_width
        return att.Dealt(split, 2.0 * width * a.head_width, jnp.asarray(0.0))

    @property
    def operands(self):
        """Heads, their width, and a key."""
        a = self.attention
        return Operands(a.query_heads, a.query_heads * a.head_width, a.head_width)

    @property
    def grouped_width(self):
        """Width of a head."""
        return self.attention.head_width


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """The one line of the table of kinds."""
    monkeypatch.setitem(att.KINDS, Paired, PairedLayer)


def model(attention) -> Architecture:
    block = Block.of(count=24, attention=attention, feedforward=Dense.of(width=8192, inward=2))
    return Architecture.of(width=2048, vocabulary=32000, tied=0, blocks=(block,))


BUILT_IN = model(GroupedQuery.of(query_heads=16, kv_heads=1, head_width=128, value_width=128))
SINGLE = model(Paired.of(query_heads=16, head_width=128, tokens=1))
DOUBLE = model(Paired.of(query_heads=16, head_width=128, tokens=2))
WORK = Workload.of(isl=6000, osl=400, batch=24)
ASKED = {
    "serving": ("h20_sxm", Plan.of(tp=2)),
    "serving.complete": ("h20_sxm", Plan.of(tp=2)),
    "kernels": ("h20_sxm", Plan.of(tp=2)),
    "offloading.planned": ("t4_host", Offload.of(gpu_batch=4, batches=3, compress_cache=1)),
    "partitioning.planned": ("h20_sxm", Plan.of(tp=2)),
    "economics.planned": ("h20_sxm", Plan.of(tp=2)),
}


@pytest.mark.parametrize("name", ASKED)
def test_estimators_read_a_kind_that_they_have_never_seen(name):
    system, plan = load_system(ASKED[name][0]), ASKED[name][1]
    estimator = registry.make(name, system.coefficients)

    @jax.jit
    def seconds(arch):
        answer = estimator.estimate(arch, system.hardware, WORK, plan)
        return answer.ttft, answer.tpot

    built_in, single, double = (
        [float(x) for x in seconds(arch)] for arch in (BUILT_IN, SINGLE, DOUBLE)
    )
    assert single == pytest.approx(built_in, rel=1e-12)
    assert double[1] < single[1] * (1 - 1e-6)


def test_memory_reads_it():
    context = jnp.asarray(10001.0)
    assert float(decoder.cache_bytes(SINGLE, context)) == 24 * 2 * 128 * 2 * 10001
    assert float(decoder.cache_bytes(DOUBLE, context)) == 24 * 128 * 2 * 10001
    hardware = load_system("h20_sxm").hardware
    built_in, single, double = (
        footprint.memory(arch, hardware, Plan.of(tp=2)) for arch in (BUILT_IN, SINGLE, DOUBLE)
    )
    assert jax.tree.leaves(single) == jax.tree.leaves(built_in)
    assert float(double.token_bytes) * 2 == float(single.token_bytes)


def test_the_table_of_layers_has_its_row():
    (row,) = layers.rows(DOUBLE)
    assert float(row.attention.cache) == 2 * 128 * 2 / 2
    assert float(row.projections.elements) == 2048 * (16 + 2) * 128 + 16 * 128 * 2048


def test_the_page_lists_as_many_files_as_it_says():
    text = PAGE.read_text()
    said = re.search(r"touches at most\s+(\w+) files", text)
    rows = re.findall(r"^\| `([^`]+)` \|", text, re.M)
    assert said and NUMBERS.index(said.group(1)) >= len(rows)
    assert 0 < len(rows) <= 8
    root = PAGE.parents[1]
    assert all((root / path).is_file() for path in rows)
