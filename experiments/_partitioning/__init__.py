"""Pope et al. 2022 (arXiv 2211.05102): what its tables, figures and text say, beside ours."""
