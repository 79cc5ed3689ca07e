"""Formats of request traces: their columns, units of time, sessions and hashed blocks."""

from collections.abc import Mapping
from typing import NamedTuple

from infer_jax.errors import InputError

BLOCK = 512  # tokens a hashed block of Mooncake's traces


class Form(NamedTuple):
    """Columns of a format and the unit of its times in seconds; 0: a date and a time of day.

    ``arrival`` is empty where requests are there at the start.

    ``session``: the column of a conversation's number; ``block``: tokens of a hashed block.
    """

    source: str
    arrival: str
    prompt: str
    output: str
    second: float
    session: str = ""
    block: int = BLOCK


FORMS = (
    # github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024
    Form("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", 0.0),
    # github.com/HPMLL/BurstGPT
    Form("burstgpt", "Timestamp", "Request tokens", "Response tokens", 1.0, "Session ID"),
    # github.com/kvcache-ai/Mooncake; with session_id as ai-dynamo/dynamo's data generator writes it
    Form("mooncake", "timestamp", "input_length", "output_length", 1e-3, "session_id"),
    # github.com/alibaba-edu/qwen-bailian-usagetraces-anon: a turn names the one before it
    Form("bailian", "timestamp", "input_length", "output_length", 1.0, "chat_id", 16),
    # github.com/alibaba/ServeGen, data/offline/README.md: one batch task each, without times
    Form("servegen offline", "", "input_length", "output_length", 1.0),
    Form("vidur", "arrived_at", "num_prefill_tokens", "num_decode_tokens", 1.0),
    Form("llmservingsim", "arrival_time_ns", "input_toks", "output_toks", 1e-9),
    Form("llmservingsim run", "arrival_time", "input_toks", "output_toks", 1.0),
    Form("apex", "StartTimeOffset", "ContextTokens", "GeneratedTokens", 1e-9),
    Form("plain", "arrival_s", "prompt_tokens", "output_tokens", 1.0, "session"),
)
PARENT = "parent_chat_id"  # of Bailian's: the turn before
# a run of a server: when the engine queued a request, and when it had its first and last token
MEASURED = ("queued_ts", "first_token_ts", "last_token_ts")
UNANSWERED = "burstgpt"  # logs failed requests with no response token: they are dropped
FORMATS = (
    "a trace of Azure, BurstGPT, Mooncake, Dynamo, Bailian, Vidur, LLMServingSim or APEX+, a "
    "detailed result of vLLM's or SGLang's benchmark, or a CSV of arrival_s, prompt_tokens, "
    "output_tokens"
)


def form_of(file: str, columns: Mapping[str, object]) -> Form:
    """The format with these columns.

    Raises:
        InputError: none has any of them, or the nearest one lacks a column.
    """

    def lacks(form: Form) -> list[str]:
        return [name for name in form[1:4] if name and name not in columns]

    form = max(
        FORMS, key=lambda x: (sum(name in columns for name in (*x[1:4], x.session)), -len(lacks(x)))
    )
    missing = lacks(form)
    if len(missing) == sum(map(bool, form[1:4])):
        raise InputError(file, "columns", ", ".join(map(str, columns)), FORMATS)
    if missing:
        allowed = f"the columns {', '.join(form[1:4])} ({form.source})"
        raise InputError(file, missing[0], "missing", allowed)
    return form
