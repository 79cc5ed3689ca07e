"""Bytes that a quantised number takes, and the bits in which it is multiplied.

Stored bytes are (bits + scale bits / group) / 8; per-tensor and per-channel scales are left
out, being under a thousandth of a byte per element.
"""

from dataclasses import dataclass, replace

from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.specs import Format


@dataclass(frozen=True)
class Scheme:
    """One number format of a checkpoint; ``block``: outputs and inputs that share a scale."""

    name: str
    bytes: float
    bits: int
    block: tuple[int, int] = (1, 1)

    def format(self) -> Format:
        """The format as a spec."""
        rows, columns = self.block
        return Format.of(bytes=self.bytes, bits=self.bits, rows=rows, columns=columns)


def grouped(name: str, bits: int, group: int, overhead: float, multiplied: int) -> Scheme:
    """Numbers of ``bits`` with ``overhead`` bits of scale and zero point per group of inputs."""
    return Scheme(name, (bits + overhead / group) / 8.0, multiplied, (1, group))


def padded(name: str, bits: int, group: int, overhead: float, multiplied: int) -> Scheme:
    """As ``grouped``, where engines fill up the last group of a slice: cut anywhere."""
    return replace(grouped(name, bits, group, overhead, multiplied), block=(1, 1))


def blocked(name: str, bits: int, block: tuple[int, int], multiplied: int) -> Scheme:
    """Numbers of ``bits`` with a float32 scale per block of outputs x inputs."""
    return Scheme(name, (bits + 32 / (block[0] * block[1])) / 8.0, multiplied, block)


BF16 = Scheme("bfloat16", 2.0, 16)
DTYPES = {
    "bfloat16": BF16,
    "float16": Scheme("float16", 2.0, 16),
    "float32": Scheme("float32", 4.0, 16),
}
FP8 = Scheme("fp8", 1.0, 8)
# DeepSeek-V3 report (arXiv 2412.19437), Section 3.3: one float32 scale per 128 x 128 weights
FP8_BLOCK = blocked("fp8 in blocks of 128 x 128", 8, (128, 128), 8)
INT8 = Scheme("int8", 1.0, 8)
# A float16 scale and a 4-bit zero point per 128 weights: AutoAWQ's and GPTQ's packing
INT4 = grouped("int4 in groups of 128", 4, 128, 16 + 4, 16)
# Two-level scaling: an e4m3 scale per 16 (NVIDIA, "Introducing NVFP4", 2025)
NVFP4 = grouped("nvfp4", 4, 16, 8, 4)
# An e8m0 scale per 32 (OCP Microscaling Formats v1.0); weights only, as gpt-oss ships. 90 groups
# over 8 ranks are 12 on each, the last filled up (vllm/model_executor/models/gpt_oss.py, 0.11)
MXFP4 = padded("mxfp4", 4, 32, 8, 16)
MXFP8 = grouped("mxfp8", 8, 32, 8, 8)

CHOICES = {
    "bf16": BF16,
    "fp8": FP8,
    "fp8_block": FP8_BLOCK,
    "int8": INT8,
    "int4": INT4,
    "awq": INT4,
    "gptq": INT4,
    "nvfp4": NVFP4,
    "mxfp4": MXFP4,
}

CACHES = {"bf16": BF16, "fp16": DTYPES["float16"], "fp8": FP8}

MODELOPT = {
    "FP8": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8,
    "FP8_PB_WO": FP8_BLOCK,
    "MXFP8": MXFP8,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": grouped("nvfp4 weights only", 4, 16, 8, 16),
    "MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": padded("mxfp4 weights, fp8 activations", 4, 32, 8, 8),
    "W4A16_AWQ": grouped("int4 in groups of 128", 4, 128, 16, 16),
    "INT4_AWQ": grouped("int4 in groups of 128", 4, 128, 16, 16),
    "W4A8_AWQ": grouped("int4 in groups of 128, fp8 activations", 4, 128, 16, 8),
    "W8A16": Scheme("int8 weights only", 1.0, 16),
    "W8A8_SQ_PER_CHANNEL": INT8,
}


def of_group(group: Facts) -> Scheme:
    """The format of one of compressed-tensors' ``config_groups``.

    Raises:
        InputError: a type or a number of bits that is not known.
    """
    weights = group.section("weights")
    if weights is None:
        raise group.error("weights", "missing", "a JSON object")
    kind = weights.text("type", allowed=("float", "int"))
    bits = weights.count("num_bits", low=2, high=8)
    size = weights.count("group_size", default=0, low=-1, silent=True)
    block = weights.items("block_structure")
    inputs = group.section("input_activations")
    activations = 16
    if inputs is not None:
        activations = inputs.count("num_bits", default=16, low=4, high=16, silent=True)
    multiplied = next(c for c in (4, 8, 16) if c >= max(bits, activations))
    if kind == "float" and bits not in (4, 8):
        raise weights.error("num_bits", bits, "4 or 8 for floats")
    if block is not None:
        return blocked(f"fp{bits} in blocks", bits, _block(weights, block), multiplied)
    if size <= 0:
        return Scheme(f"{'fp' if kind == 'float' else 'int'}{bits}", bits / 8.0, multiplied)
    if kind == "float":
        name = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}.get((bits, size))
        stored = padded if name == "mxfp4" else grouped
        return stored(name or f"fp{bits} in groups of {size}", bits, size, 8, multiplied)
    symmetric = weights.flag("symmetric", default=True)
    return grouped(
        f"int{bits} in groups of {size}", bits, size, 16 + (0 if symmetric else bits), multiplied
    )


def of_blocks(facts: Facts) -> Scheme:
    """fp8 weights: in blocks with a float32 scale where ``weight_block_size`` is given."""
    block = facts.items("weight_block_size")
    if block is None:
        return FP8
    rows, columns = _block(facts, block)
    return blocked(f"fp8 in blocks of {rows} x {columns}", 8, (rows, columns), 8)


def of_packed(facts: Facts, name: str) -> Scheme:
    """AWQ and GPTQ: ``bits`` with a float16 scale and a zero point per ``group_size``."""
    bits = facts.count("bits", "w_bit", low=2, high=8)
    size = facts.count("group_size", "q_group_size", default=128, low=-1)
    if size <= 0:
        return Scheme(f"{name} int{bits} per channel", bits / 8.0, 16)
    return grouped(f"{name} int{bits} in groups of {size}", bits, size, 16 + bits, 16)


def of_bitsandbytes(facts: Facts) -> Scheme:
    """int8, or 4 bits in blocks of 64 with float32 scales, themselves quantised on request.

    Source: QLoRA (arXiv 2305.14314), Section 3: 0.5 and 0.127 bits of scale per parameter.
    """
    if facts.flag("load_in_8bit", default=False):
        return INT8
    if not facts.flag("load_in_4bit", default=False):
        raise facts.error("load_in_4bit", "missing", "true here or under load_in_8bit")
    if facts.flag("bnb_4bit_use_double_quant", default=False):
        return padded("nf4 with quantised scales", 4, 64, 8 + 32 / 256, 16)
    return padded("nf4", 4, 64, 32, 16)


def _block(facts: Facts, block: list) -> tuple[int, int]:
    good = [b for b in block if isinstance(b, int) and not isinstance(b, bool) and 0 < b < 2**20]
    if len(block) != 2 or len(good) != 2:
        raise facts.error("weight_block_size", block, "two whole numbers above 0")
    return block[0], block[1]
