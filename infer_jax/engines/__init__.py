"""The serving engines, each one object: its scheduler, launch command, version and defaults.

A new engine is a file like ``vllm.py`` and a row of ``ENGINES`` (docs/add-an-engine.md).
"""

from infer_jax.engines.engine import ServingEngine as ServingEngine
from infer_jax.engines.launches import (
    Instance as Instance,
    Launch as Launch,
    LaunchedService as LaunchedService,
    ModelCheckpoint as ModelCheckpoint,
    Step as Step,
)
from infer_jax.engines.sglang import SglangEngine
from infer_jax.engines.trtllm import TrtllmEngine
from infer_jax.engines.vllm import VllmEngine

ENGINES: dict[str, ServingEngine] = {
    engine.name: engine for engine in (VllmEngine(), SglangEngine(), TrtllmEngine())
}
