"""Sensitivity and co-design: elasticities, and designs by gradient ascent."""

from typing import TYPE_CHECKING

from infer_jax.on_demand import on_demand

if TYPE_CHECKING:
    from infer_jax.design.config_json import export as export
    from infer_jax.design.design import Design as Design, Search as Search, optimise as optimise
    from infer_jax.design.quality import LAWS as LAWS, law as law
    from infer_jax.design.quality_wrapper import QualityWrapper as QualityWrapper
    from infer_jax.design.sensitivity import (
        Elasticity as Elasticity,
        analyser as analyser,
        changed as changed,
        elasticities as elasticities,
        what_if as what_if,
    )
    from infer_jax.design.toml import load_spec as load_spec

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "config_json": "export",
        "design": "Design Search optimise",
        "quality": "LAWS law",
        "quality_wrapper": "QualityWrapper",
        "sensitivity": "Elasticity analyser changed elasticities what_if",
        "toml": "load_spec",
    },
)
