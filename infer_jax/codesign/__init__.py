"""GRADIENTS: what each number is worth, and designs that follow from it."""

from infer_jax.codesign.design import Designed as Designed, Search as Search, codesign as codesign
from infer_jax.codesign.export import export as export
from infer_jax.codesign.judged import Judged as Judged
from infer_jax.codesign.quality import LAWS as LAWS, law as law
from infer_jax.codesign.sensitivity import (
    Elasticity as Elasticity,
    analyser as analyser,
    changed as changed,
    elasticities as elasticities,
    what_if as what_if,
)
from infer_jax.codesign.toml import load_spec as load_spec
