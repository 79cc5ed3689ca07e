"""The bundled model or system that a publisher's or a benchmark's name refers to."""

import difflib
import re
from collections.abc import Collection

# suffixes of publishers for a tuning, a format or a date, which do not change the shape
TAIL = re.compile(
    r"-(instruct|chat|base|it|hf|thinking|fp8|fp4|nvfp4|mxfp4|bf16|int4|int8|awq|gptq|w4a16|w8a8"
    r"|dynamic|block|v\d+(\.\d+)?|0\d{3}|2[4-9]\d{2})$"
)
SAME_SHAPE = {
    "deepseek-v3.1": "deepseek-v3",
    "glm-4.6": "glm-4.5",
    "kimi-k2.6": "kimi-k2.5",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "mistral-large": "mistral-large-2",
    "nemotron-h-8b-base-8k": "nemotron-h-8b",
    "phi-3-medium-128k": "phi-3-medium",
}
# formats by the words of a name; a publisher whose FP8 has scales by block
FORMATS = {
    "fp8": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4", "awq": "awq",
    "bf16": "bf16", "gptq": "gptq", "int8": "int8", "w8a8": "int8", "int4": "int4", "w4a16": "int4",
}  # fmt: skip
BY_BLOCK = "qwen/"
# what a name of a chip has before and between its words, and the forms that it may leave out
MAKES, FORMS = r"nvidia|amd|instinct|geforce|[^a-z0-9]", ("", "sxm", "nvl72")
SHORTEST = 3  # fewest letters of a name for which a similar one is suggested


def shape_of(name: str, known: Collection[str]) -> str | None:
    """The one of ``known`` models that has the shape of a name on Hugging Face, if any.

    >>> shape_of("meta-llama/Llama-3.1-8B-Instruct", ["llama-3.1-8b"])
    'llama-3.1-8b'
    >>> shape_of("someone/unheard-of", ["llama-3.1-8b"]) is None
    True
    """
    plain = name.rstrip("/").rpartition("/")[2].casefold()
    plain = plain.removeprefix("meta-").removeprefix("nvidia-")
    while plain not in known and SAME_SHAPE.get(plain) not in known:
        shorter = TAIL.sub("", plain)
        if shorter == plain:
            return None
        plain = shorter
    return plain if plain in known else SAME_SHAPE[plain]


def format_of(name: str) -> str | None:
    """The format of the weights in a name on Hugging Face, if it has one.

    >>> format_of("Qwen/Qwen3-32B-FP8"), format_of("nvidia/Qwen3-32B-NVFP4"), format_of("opt-13b")
    ('fp8_block', 'nvfp4', None)
    """
    words = name.rpartition("/")[2].casefold().split("-")
    named = next((FORMATS[word] for word in words if word in FORMATS), None)
    return "fp8_block" if named == "fp8" and name.casefold().startswith(BY_BLOCK) else named


def chip_of(name: str, known: Collection[str]) -> str | None:
    """The one of ``known`` systems that a name means, whatever its blanks, dashes and make.

    >>> chip_of("H100", ["h100_pcie", "h100_sxm"]), chip_of("gb200", ["gb200_nvl72"])
    ('h100_sxm', 'gb200_nvl72')
    >>> chip_of("NVIDIA RTXPRO6000", ["rtx_pro_6000"])
    'rtx_pro_6000'
    """
    short = {one.replace("_", ""): one for one in known}
    plain = re.sub(MAKES, "", name.casefold())
    return next((short[plain + form] for form in FORMS if plain and plain + form in short), None)


def nearest(name: str, known: Collection[str]) -> str:
    """The three of ``known`` that are closest to a name, as a hint in a sentence.

    >>> nearest("llama-3.1-7b", ["llama-3.1-8b", "opt-13b"])
    'llama-3.1-8b is closest; '
    """
    plain = name[:80].rstrip("/").rpartition("/")[2].casefold()
    close = difflib.get_close_matches(plain, known, n=3, cutoff=0.4)
    if len(plain) < SHORTEST or not close:
        return ""
    verb = "is closest" if len(close) < 3 else "are closest"
    return f"{', '.join(close[:-1])}{' or ' if close[1:] else ''}{close[-1]} {verb}; "
