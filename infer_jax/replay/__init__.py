"""Replays an engine's scheduler: when each request is admitted, fed, decoded, preempted."""

from infer_jax.replay.lanes import lanes as lanes
from infer_jax.replay.log import Log as Log
from infer_jax.replay.preempting import Preempting as Preempting
from infer_jax.replay.prefill_first import PrefillFirst as PrefillFirst
from infer_jax.replay.requests import Requests as Requests
from infer_jax.replay.retrace import retrace as retrace
from infer_jax.replay.rules import Rules as Rules
from infer_jax.replay.scheduler import replay as replay, side_by_side as side_by_side
from infer_jax.replay.serve import serve as serve
from infer_jax.replay.sglang import sglang as sglang
from infer_jax.replay.trtllm import trtllm as trtllm
from infer_jax.replay.vllm import vllm as vllm
from infer_jax.replay.whole_life import WholeLife as WholeLife
