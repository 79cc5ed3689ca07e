"""What should be cited? The library, and the works whose models it holds, as BibTeX."""

ENTRIES = r"""
@software{infer_jax,
  title = {infer\_jax: a differentiable model of {LLM} inference},
  author = {{The infer\_jax authors}},
  version = {VERSION},
  note = {Apache-2.0}
}

@misc{erdil2025inference,
  title = {Inference economics of language models},
  author = {Erdil, Ege},
  year = {2025},
  eprint = {2506.04645},
  archivePrefix = {arXiv}
}

@inproceedings{pope2023efficiently,
  title = {Efficiently Scaling {Transformer} Inference},
  author = {Pope, Reiner and Douglas, Sholto and Chowdhery, Aakanksha and Devlin, Jacob and
            Bradbury, James and Heek, Jonathan and Xiao, Kefan and Agrawal, Shivani and
            Dean, Jeff},
  booktitle = {Proceedings of Machine Learning and Systems},
  volume = {5},
  year = {2023},
  eprint = {2211.05102},
  archivePrefix = {arXiv}
}

@techreport{alibaba2025infersim,
  title = {{InferSim}: A Lightweight {LLM} Inference Performance Simulator},
  author = {{Alimama AI Infra Team} and {Future Living Lab}},
  institution = {Alibaba Group},
  year = {2025},
  url = {https://github.com/alibaba/InferSim}
}

@inproceedings{sheng2023flexgen,
  title = {{FlexGen}: High-Throughput Generative Inference of Large Language Models with a
           Single {GPU}},
  author = {Sheng, Ying and Zheng, Lianmin and Yuan, Binhang and Li, Zhuohan and Ryabinin, Max and
            Chen, Beidi and Liang, Percy and R{\'e}, Christopher and Stoica, Ion and Zhang, Ce},
  booktitle = {Proceedings of the 40th International Conference on Machine Learning},
  year = {2023},
  eprint = {2303.06865},
  archivePrefix = {arXiv}
}

@misc{inference_optimisation,
  title = {Inference Optimisation},
  note = {Chapter 4 of lecture notes on language models},
  url = {https://hcoppockno10.github.io/lecture-notes/chapters/inference.html}
}
"""


def citation() -> str:
    """BibTeX of this library and of the five works whose models it holds.

    >>> print(citation().splitlines()[0])
    @software{infer_jax,
    """
    from infer_jax import __version__

    return ENTRIES.strip().replace("VERSION", __version__)
