"""The launch commands of a plan for each engine, and why an engine has none."""

from infer_jax.engines import ENGINES as ENGINES, Instance, Launch, LaunchedService


def launches(service: LaunchedService, engine: str | None = None) -> list[Launch]:
    """The plan for each engine, or for one of them."""
    return [own.launch(service) for name, own in ENGINES.items() if engine in (None, name)]


def obstacles(service: LaunchedService, engine: str) -> list[str]:
    """Why an engine cannot start a plan; nothing where it can."""
    return ENGINES[engine].obstacles(service)


def budget(instance: Instance, service: LaunchedService, engine: str) -> int:
    """Tokens of a pass of one attention group of an instance, by an engine's rules."""
    return ENGINES[engine].budget(instance, service)
