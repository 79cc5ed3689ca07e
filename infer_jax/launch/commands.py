"""The launch commands of a plan for each engine, and why an engine has none."""

from infer_jax.launch import sglang, trtllm, vllm
from infer_jax.launch.servers import Launch, LaunchedService, missing

ENGINES = {"vllm": vllm.vllm, "sglang": sglang.sglang, "trtllm": trtllm.trtllm}
OBSTACLES = {"vllm": vllm.obstacles, "sglang": sglang.obstacles, "trtllm": trtllm.obstacles}


def launches(service: LaunchedService, engine: str | None = None) -> list[Launch]:
    """The plan for each engine, or for one of them."""
    started = [launch(service) for name, launch in ENGINES.items() if engine in (None, name)]
    return [one._replace(comments=service.comments) if one.steps else one for one in started]


def obstacles(service: LaunchedService, engine: str) -> list[str]:
    """Why an engine cannot start a plan; nothing where it can."""
    return [*missing(service), *OBSTACLES[engine](service)]
