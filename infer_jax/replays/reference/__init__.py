"""The engines' schedulers in plain Python: the specification that the compiled replay follows.

>>> from infer_jax.replays.reference import Vllm, serve_plainly
>>> step = lambda decoding, context, new, pairs: 0.01 + 1e-6 * new
>>> requests = serve_plainly(step, Vllm(budget=8192, slots=8, blocks=100), [(0.0, 100, 3)])
>>> round(requests[0].first, 4), round(requests[0].last, 4)
(0.0101, 0.0301)
"""

from infer_jax.replays.reference.engine import (
    ReferenceEngine as ReferenceEngine,
    ReferencePass as ReferencePass,
    ReferenceRequest as ReferenceRequest,
    Trtllm as Trtllm,
    Vllm as Vllm,
    one_token as one_token,
)
from infer_jax.replays.reference.loops import (
    PlainStep as PlainStep,
    ReferenceServer as ReferenceServer,
    began as began,
    computed as computed,
    route_plainly as route_plainly,
    serve_plainly as serve_plainly,
)
from infer_jax.replays.reference.sglang import Sglang as Sglang
