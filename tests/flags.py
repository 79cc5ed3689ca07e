"""Which of the options that we write a program of a release takes, read from its wheel.

    pip download --no-deps -d WHEELS vllm==0.33.0 vllm==0.31.0 sglang==0.5.23 sglang==0.5.21 \\
        vllm-router==0.1.17 sglang-router==0.3.2 aiperf==0.13.0 ai-dynamo==1.6.1
    python -m tests.flags WHEELS > tests/data/flags.toml

Nothing of a wheel is run: the sources are parsed. TensorRT-LLM's are in ``engines.toml``.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

PACKAGE = Path(__file__).parents[1] / "infer_jax"
NAME = re.compile(r"--[a-z][\w-]*")
ENGINE = {"vllm": r"vllm/engine/arg_utils\.py|vllm/entrypoints/(common/cli_args|cli/serve)\.py",
          "sglang": r"sglang/srt/arg_groups/fields/\w+\.py"}  # fmt: skip
# of each program: its wheels, and the files of these that declare its options
PROGRAMS = {
    "vllm serve 0.33.0": (("vllm-0.33.0", ENGINE["vllm"]),),
    "sglang.launch_server 0.5.23": (("sglang-0.5.23", ENGINE["sglang"]),),
    "vllm bench serve 0.33.0": (("vllm-0.33.0", r"vllm/benchmarks/(serve|datasets/datasets)\.py"),),
    "sglang.bench_serving 0.5.23": (("sglang-0.5.23", r"sglang/benchmark/serving\.py"),),
    "aiperf profile 0.13.0": (("aiperf-0.13.0", r"aiperf/config/.*\.py"),),
    "vllm-router 0.1.17": (("vllm_router-0.1.17", r"vllm_router/router_args\.py"),),
    "sglang_router 0.3.2": (("sglang_router-0.3.2", r"sglang_router/router_args\.py"),),
    "dynamo.vllm 1.6.1": (("ai_dynamo-1.6.1", r"dynamo/(vllm|common)/.*args\.py"),
                          ("vllm-0.31.0", ENGINE["vllm"])),
    "dynamo.sglang 1.6.1": (("ai_dynamo-1.6.1", r"dynamo/(sglang|common)/.*args\.py"),
                            ("sglang-0.5.21", ENGINE["sglang"])),
    "dynamo.trtllm 1.6.1": (("ai_dynamo-1.6.1", r"dynamo/(trtllm|common)/.*args\.py"),),
}  # fmt: skip


def options(source: str) -> Iterator[str]:
    """Options that a file declares: arguments of add_argument and its like, fields of settings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            named = [x.value for x in node.keywords if x.arg in ("flag_name", "name")]
            adds = isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
            for argument in [*named, *(node.args if adds else [])]:
                yield from filter(NAME.fullmatch, texts(argument))
        elif isinstance(node, ast.ClassDef):
            fields = (x.target for x in node.body if isinstance(x, ast.AnnAssign))
            names = (x.id for x in fields if isinstance(x, ast.Name))
            yield from (f"--{name.replace('_', '-')}" for name in names)


def texts(node: ast.expr) -> list[str]:
    """The texts of an argument; of one that is put together its fixed parts."""
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(x.value) for x in node.values if isinstance(x, ast.Constant))]
    if isinstance(node, ast.Tuple | ast.List):
        return [text for x in node.elts for text in texts(x)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def of_program(folder: Path, parts) -> set[str]:
    """The options of a program."""
    found: set[str] = set()
    for wheel, files in parts:
        (path,) = folder.glob(f"{wheel}-*.whl")
        with ZipFile(path) as archive:
            for name in archive.namelist():
                if re.fullmatch(files, name):
                    found |= set(options(archive.read(name).decode()))
    return found


def written() -> set[str]:
    """Every option in the sources of launch commands and folders, of whatever program."""
    files = [x for room in ("engines", "rollouts") for x in (PACKAGE / room).rglob("*.*")]
    texts = (x.read_text("utf-8") for x in files if x.suffix in (".py", ".sh", ".yaml"))
    return {name for text in texts for name in re.findall(rf"(?<![\w-]){NAME.pattern}", text)}


if __name__ == "__main__":
    print(f"# {(__doc__ or '').splitlines()[0]}\n# Made by `python -m tests.flags WHEELS`.\n")
    for program, parts in PROGRAMS.items():
        names = sorted(of_program(Path(sys.argv[1]), parts) & written())
        body = textwrap.fill(" ".join(names), 98, break_on_hyphens=False)
        print(f'"{program}" = """\n{body}\n"""\n')
