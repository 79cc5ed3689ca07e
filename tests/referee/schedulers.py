"""The engines' rules in plain Python, which ship with the package, by short names."""

from infer_jax.replays.reference import (
    PlainStep as StepTime,
    ReferenceEngine as Engine,
    ReferencePass as Pass,
    ReferenceRequest as Request,
    Sglang,
    Trtllm,
    Vllm,
    began,
    computed,
    ended,
    one_token,
    serve_plainly as serve,
)

__all__ = [
    "Engine",
    "Pass",
    "Request",
    "Sglang",
    "StepTime",
    "Trtllm",
    "Vllm",
    "began",
    "computed",
    "ended",
    "one_token",
    "serve",
]
