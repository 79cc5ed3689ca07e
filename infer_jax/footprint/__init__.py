"""Does it fit? One account of a chip's memory, which every limit and every verb reads.

chip = account(resident(arch), hardware, ranks, engine, overheads)
memory(arch, hardware, plan, engine, overheads)     # what a vLLM server prints about it
"""

from infer_jax.footprint.chip import (
    Account as Account,
    Drafter as Drafter,
    Filled as Filled,
    Launched as Launched,
    MeanLengths as MeanLengths,
    account as account,
    bytes_of_requests as bytes_of_requests,
    requests_held as requests_held,
)
from infer_jax.footprint.settings import (
    GIB as GIB,
    EngineSettings as EngineSettings,
    Overheads as Overheads,
    default_numbers as default_numbers,
)
from infer_jax.footprint.startup import (
    StartupMemory as StartupMemory,
    memory as memory,
    memory_with_requests as memory_with_requests,
    startup_figures as startup_figures,
)
