"""The files that the pages speak of: spaces, specs, and runs that a reader would have measured.

Runs are files as `vllm bench serve --save-result` writes them.
"""

import csv
import json
from pathlib import Path

from tests.installed.pages import ROOT, block

# a run of which every request was measured; not ours to commit
LOGGED = ROOT.parent / "shared/data/measured/llmservingsim/RTXPRO6000_Llama-3.1-8B"
# four requests a second for five minutes
TRACE = "arrival_s,prompt_tokens,output_tokens\n" + "".join(
    f"{i / 4 + i % 3 / 10},{100 + i % 7},{10 + i % 5}\n" for i in range(1200)
)
TABLE = Path(__file__).parents[1] / "data" / "server" / "runs.csv"


def reader(folder: Path) -> None:
    """A new folder in which the commands of the pages can be run."""
    folder.mkdir(exist_ok=True)
    for name in ("experiments", "examples", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "docs" / "pictures").mkdir(parents=True)
    (folder / "SPACE.toml").write_text(block("docs/sweeps.md", "toml", "[keep]"))
    (folder / "MAP.toml").write_text(block("docs/gallery.md", "toml", "tpot"))
    (folder / "ALL.toml").write_text(block("docs/gallery.md", "toml", "speed"))
    (folder / "SPEC.toml").write_text(block("docs/codesign.md", "toml", "[free]"))
    (folder / "PLAN.json").write_text((ROOT / "tests" / "data" / "plan.json").read_text())
    (folder / "TRACE.csv").write_text(TRACE)
    write_runs(folder / "runs")
    if LOGGED.is_dir():
        (folder / LOGGED.name).symlink_to(LOGGED)


def write_runs(folder: Path) -> None:
    """``c8.json`` and the like, named by concurrency, in a new folder."""
    folder.mkdir()
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            count, isl, osl = (int(row[name]) for name in ("concurrency", "isl", "osl"))
            requests = 8 * count
            latency = float(row["ttft_mean_ms"]) + float(row["tpot_mean_ms"]) * (osl - 1)
            duration = requests / count * latency / 1e3
            output = {"date": "20260301-120000", "backend": row["engine"], "model_id": row["model"]}
            output |= {"num_prompts": requests, "completed": requests, "failed": 0}
            output |= {"request_rate": "inf", "burstiness": 1.0, "max_concurrency": count}
            tokens = {"input": requests * isl, "output": requests * osl}
            output |= {f"total_{side}_tokens": many for side, many in tokens.items()}
            output |= {"duration": duration, "request_throughput": requests / duration}
            output |= {"output_throughput": requests * osl / duration}
            output |= {f"mean_{x}_ms": float(row[f"{x}_mean_ms"]) for x in ("ttft", "tpot")}
            (folder / f"c{count}.json").write_text(json.dumps(output), encoding="utf-8")
