"""The launch commands of a plan for each engine."""

from infer_jax.launch.servers import Launch, LaunchedService
from infer_jax.launch.sglang import sglang
from infer_jax.launch.trtllm import trtllm
from infer_jax.launch.vllm import vllm

ENGINES = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}


def launches(service: LaunchedService, engine: str | None = None) -> list[Launch]:
    """The plan for each engine, or for one of them."""
    started = [launch(service) for name, launch in ENGINES.items() if engine in (None, name)]
    return [one._replace(comments=service.comments) if one.steps else one for one in started]
