"""A plan as commands that start it, for a named version of each engine."""

from infer_jax.engines import (
    ENGINES as ENGINES,
    Instance as Instance,
    Launch as Launch,
    LaunchedService as LaunchedService,
    ModelCheckpoint as ModelCheckpoint,
    Step as Step,
)
from infer_jax.launch.plans import (
    Starter as Starter,
    budget as budget,
    checkpoint as checkpoint,
    instances as instances,
    launches as launches,
    service as service,
)
