"""The runs that a reader would have measured: files as `vllm bench serve --save-result` writes."""

import csv
import json
from pathlib import Path

TABLE = Path(__file__).parents[1] / "data" / "server" / "runs.csv"


def write_runs(folder: Path) -> None:
    """``c8.json`` and the like, named by concurrency, in a new folder."""
    folder.mkdir()
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            count, isl, osl = (int(row[name]) for name in ("concurrency", "isl", "osl"))
            requests = 8 * count
            latency = float(row["ttft_mean_ms"]) + float(row["tpot_mean_ms"]) * (osl - 1)
            duration = requests / count * latency / 1e3
            told = {
                "date": "20260301-120000",
                "backend": row["engine"],
                "model_id": row["model"],
                "num_prompts": requests,
                "request_rate": "inf",
                "burstiness": 1.0,
                "max_concurrency": count,
                "failed": 0,
                "duration": duration,
                "completed": requests,
                "total_input_tokens": requests * isl,
                "total_output_tokens": requests * osl,
                "request_throughput": requests / duration,
                "output_throughput": requests * osl / duration,
                "mean_ttft_ms": float(row["ttft_mean_ms"]),
                "mean_tpot_ms": float(row["tpot_mean_ms"]),
            }
            (folder / f"c{count}.json").write_text(json.dumps(told), encoding="utf-8")
