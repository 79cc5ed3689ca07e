"""What do the economics paper's Figures 1 and 5 to 10 look like when we draw them?

The paper marks API providers' prices and speeds in its figures; those points are not in its
text, so none are drawn.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from experiments._economics.fronts import Front, draw, front_of, fronts_of
from experiments._report import OUT
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics
from infer_jax.plots import Curve, plot_frontier
from infer_jax.plots.style import save

Curves = Mapping[str, Front]
SOURCE = "Model and settings: Erdil 2025 (arXiv 2506.04645), "
SAME = (
    "Curves agree with the stored output of the authors' program within 0.1 %; markers are the "
    "points that maximise speed cubed over price (Eq. 45). "
)
LOST = "The API providers' data points of the original are lost and not drawn."
DEMANDS = {"10,000 tokens/s over all requests": 1e4, "1,000,000 tokens/s over all requests": 1e6}
TOY = {
    "Llama 3 8B": "Llama_3_8B",
    "Llama 3 70B": "Llama_3_70B",
    "GPT-3": "GPT_3",
    "PaLM-540B": "PaLM_540B",
    "GPT-4": "GPT_4",
}


class Figure(NamedTuple):
    """A figure of the paper: its file, title, what its caption adds, and its panels."""

    file: str
    title: str
    note: str
    panels: Callable[[], Mapping[str, Curves]]
    marked: bool = True


def _toy() -> Mapping[str, Curves]:
    """Level 2 at one token of context, under two limits of demand."""
    hardware, coefficients = economics_hardware("H100")
    model = Economics.level2().fitted(coefficients)
    grids = {
        label: draw(economics_model(name), hardware, model, context=1.0)
        for label, name in TOY.items()
    }
    return {
        title: {label: front_of(grid, limit) for label, grid in grids.items()}
        for title, limit in DEMANDS.items()
    }


def _comparison(comparison: str) -> Callable[[], Mapping[str, Curves]]:
    return lambda: {"": fronts_of(comparison)}


def _precise() -> Mapping[str, Curves]:
    """The two comparisons of models; without speculation the program uses 16-bit weights."""
    return {
        "No speculation, 16-bit weights (DeepSeek 8-bit)": {
            label.replace(" 8-bit", "").replace(" 16-bit", ""): front
            for label, front in fronts_of("all_models_comparison").items()
        },
        "Draft Llama 3 8B, acceptance 0.8": fronts_of("all_models_comparison_with_spec_dec"),
    }


FIGURES: dict[str, Figure] = {
    "1": Figure(
        "figure-01-toy.png",
        "Figure 1: infinite network bandwidth, limited demand (H100)",
        "Section 2.2, level 2, context 1. The models of Table 1; which of them the original "
        "draws is lost, and so are its values: nothing is compared. " + LOST,
        _toy,
        marked=False,
    ),
    "5": Figure(
        "figure-05-models.png",
        "Figure 5: models on H100",
        "Section 4, level 4. " + SAME + "The program's labels say 8-bit on the left, too, where "
        "it evaluates 16-bit weights. " + LOST,
        _precise,
    ),
    "6": Figure(
        "figure-06-gpus.png",
        "Figure 6: Llama 3 70B (8-bit) on three generations of GPU",
        "Section 4, level 4. " + SAME + LOST,
        _comparison("gpus_comparison"),
    ),
    "7": Figure(
        "figure-07-speculation.png",
        "Figure 7: speculative decoding with a draft of Llama 3 8B (H100, 16-bit)",
        "Section 4.1, level 4. " + SAME + "Table 5, printed beside it, is of an older version.",
        _comparison("spec_dec_comparison"),
    ),
    "8": Figure(
        "figure-08-quantisation.png",
        "Figure 8: Llama 3 70B by weight format (H100)",
        "Section 4.2, level 4. " + SAME,
        _comparison("quantization_comparison"),
    ),
    "9": Figure(
        "figure-09-mistral-large.png",
        "Figure 9: Mistral Large 2, no context and 100,000 tokens (H100)",
        "Section 4.3, level 4; the draft is Llama 3 8B with one KV head. " + SAME,
        _comparison("mistral_large_comparison"),
    ),
    "10": Figure(
        "figure-10-deepseek.png",
        "Figure 10: DeepSeek-V3, no context and 100,000 tokens (H100)",
        "Section 4.3, level 4; the draft is Llama 3 8B with one KV head. " + SAME,
        _comparison("deepseek_v3_context_len_comparison"),
    ),
    "context": Figure(
        "figure-context-length.png",
        "Llama 3 70B (8-bit) by context length (H100)",
        "Section 4.3, level 4, a comparison of the authors' program. " + SAME,
        _comparison("context_length_comparison"),
    ),
}


def draw_figure(name: str, folder: Path = OUT) -> Path:
    """Draw a figure of the paper into ``folder`` and return where it is."""
    figure = FIGURES[name]
    panels = {
        title: {
            label: Curve(
                front.points.speed, front.points.cost, front.preferred if figure.marked else None
            )
            for label, front in curves.items()
        }
        for title, curves in figure.panels().items()
    }
    path = folder / figure.file
    save(plot_frontier(panels, title=figure.title, caption=SOURCE + figure.note), path)
    return path
