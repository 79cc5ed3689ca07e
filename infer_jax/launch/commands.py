"""The launch commands of a plan for each engine, and why an engine has none."""

from infer_jax.engines import ENGINES as ENGINES, Instance, Launch, LaunchedService
from infer_jax.engines.engine import pass_budget
from infer_jax.engines.launches import obstacles_of_any


def launches(service: LaunchedService, engine: str | None = None) -> list[Launch]:
    """The plan for each engine, or for one of them."""
    return [one.launch(service) for name, one in ENGINES.items() if engine in (None, name)]


def obstacles(service: LaunchedService, engine: str) -> list[str]:
    """Why an engine cannot start a plan; nothing where it can."""
    return [*obstacles_of_any(service), *ENGINES[engine].obstacles(service)]


def budget(instance: Instance, service: LaunchedService, engine: str) -> int:
    """Tokens of a pass of one attention group of an instance, by an engine's rules."""
    return pass_budget(instance, service, ENGINES[engine].scheduling)
