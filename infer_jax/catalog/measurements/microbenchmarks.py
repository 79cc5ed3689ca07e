"""Reads times of TPU operations: results of accelerator-microbenchmarks (JAX).

``detailed.json`` holds objects of ``metadata`` (benchmark_name, test_name, params, device_info)
and ``metrics`` (p50_ms, p90_ms, avg_ms, std_ms, throughput).
"""

from collections.abc import Iterator, Mapping

from infer_jax.catalog.measurements.cells import MAX_NUMBER, Cells, statistic_of
from infer_jax.catalog.measurements.run import MeasuredKernel


def recognises(value: object) -> bool:
    """True for a result, or a list of them."""
    first = value[0] if isinstance(value, list) and value else value
    return (
        isinstance(first, dict)
        and isinstance(first.get("metrics"), dict)
        and isinstance(first.get("metadata"), dict)
        and "benchmark_name" in first["metadata"]
    )


def read(file: str, value: object) -> Iterator[MeasuredKernel]:
    """The measurements in a detailed result.

    Raises:
        InputError: an entry without a time, or a malformed value.
    """
    entries = Cells(file, 0, {"entries": value if isinstance(value, list) else [value]})
    for index, entry in enumerate(entries.parts("entries"), 1):
        cells = Cells(file, index, entry.values, "entry")
        metadata, metrics = cells.part("metadata"), cells.part("metrics")
        keys = [key for key in metrics.values if key.endswith("_ms")]
        times = statistic_of({key.removesuffix("_ms"): metrics.number(key, 1e-3) for key in keys})
        seconds = times.mean if times.at(50.0) is None else times.at(50.0)
        if not seconds:
            raise cells.error("metrics.p50_ms", seconds, "a time above 0")
        params, device = metadata.part("params").values, metadata.values.get("device_info") or ""
        if isinstance(device, Mapping):
            device = device.get("device_kind") or device.get("type") or ""
        yield MeasuredKernel(
            file=file,
            line=index,
            source="microbenchmarks",
            operation=metadata.text("benchmark_name") or "",
            variant=metadata.text("test_name") or "",
            seconds=seconds,
            # other parameters (dtype, sharding) are no sizes
            sizes={
                name: float(x)
                for name, x in params.items()
                if isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < MAX_NUMBER
            },
            dtype=str(params.get("dtype", "")),
            device=str(device),
            percentiles=times.percentiles,
        )
