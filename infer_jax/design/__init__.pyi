from infer_jax.catalog.models import export as export
from infer_jax.design.design import Design as Design, Search as Search, optimise as optimise
from infer_jax.design.frontier import change_path as change_path, flips as flips, follow as follow
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
from infer_jax.design.what_ifs import Curvature as Curvature, curvatures as curvatures
