"""Sentence embeddings by all-MiniLM-L6-v2, each layer shared out over ranks, and checks of them.

Every run compares what N ranks got with the whole model in one process. With no sentences it takes six pairs
of paraphrases, and checks too that each is nearest to its other half.
"""

import argparse
import json
import os
import statistics
import sys

from arrays import LIBRARIES  # first: it says how many threads NumPy may have

import numpy

from model import Model, Tokenizer, config, rank_counts
from ranks import Ranks, RanksFailed

PAIRS = [
    ("The weather is lovely today.", "It's so sunny outside!"),
    ("He drove to the stadium.", "They went to the sports arena by car."),
    ("A cat is sleeping on the sofa.", "The kitten takes a nap on the couch."),
    ("How do I reset my password?", "I forgot my login and cannot sign in."),
    ("The central bank raised its interest rates.", "Borrowing money has become more expensive."),
    ("Knead the dough until it is smooth.", "Work flour and water into an elastic mass for bread."),
]
# Between components of unit vectors; the largest difference seen is 3e-7. In fp32 a sum of n terms in another order
# differs by some sqrt(n) * 2^-24 of their size, 2e-6 for the 1536 terms here; a component of a unit vector is some
# 1 / sqrt(384) in size; 12 such sums follow each other. What is wrong by more than rounding (a bias added twice, a
# head left out) differs by more than 1e-3.
TOLERANCE = 2e-6


def embed_alone(batches, library):
    """The whole model in this process: no ranks, no all-reduce."""
    model = Model(LIBRARIES[library]())
    return numpy.concatenate([model.embed(ids, lengths)[0] for ids, lengths in batches])


def embed_on(ranks, count, batches, repeat=1):
    """(ranks, sentences, width); and per repeat and layer, seconds of (compute, all-reduces)."""
    parts, seconds = zip(*(ranks.embed(count, ids, lengths, repeat) for ids, lengths in batches))
    return numpy.concatenate(parts, axis=1), [per_layer(times) for times in zip(*seconds)]


def per_layer(batches):
    """Of one repeat's seconds, (batches, ranks, 2). Ranks wait in all-reduces for the slowest, so that its
    computing counts, and the rest of the time is the all-reduces'."""
    whole = sum(max(whole for whole, _ in ranks) for ranks in batches)
    compute = sum(max(whole - reduces for whole, reduces in ranks) for ranks in batches)
    layers = config()["num_hidden_layers"]
    return compute / layers, (whole - compute) / layers


def median(samples):
    """(compute, all-reduces) in milliseconds."""
    return tuple(1000 * statistics.median(column) for column in zip(*samples))


def check(embeddings, alone):
    """{what: (does it hold, details)} for what the ranks got."""
    difference = float(numpy.abs(embeddings - alone).max())
    other = [rank for rank, got in enumerate(embeddings) if got.tobytes() != embeddings[0].tobytes()]
    return {
        "every rank has the same bits": (not other, f"not ranks {other}" if other else ""),
        "equal to the single-process embeddings to rounding": (
            bool(difference <= TOLERANCE),  # not so of a NaN either
            f"largest difference {difference:.1e}, tolerance {TOLERANCE:.0e}",
        ),
    }


def nearest(embeddings):
    """For each sentence (cosine, number) of the most similar other one."""
    similarity = embeddings @ embeddings.T
    numpy.fill_diagonal(similarity, -2)
    return [(float(row.max()), int(row.argmax())) for row in similarity]


def check_pairs(embeddings):
    wrong = [i for i, (_, other) in enumerate(nearest(embeddings)) if other != i ^ 1]
    return {"each sentence is nearest to its paraphrase": (not wrong, f"not numbers {wrong}" if wrong else "")}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE")
    parser.add_argument("--file", help="sentences from a file, one a line; - is the standard input")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help=f"one of {rank_counts()}; default 2")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: rank R uses GPU R")
    parser.add_argument("--library", choices=LIBRARIES, help="default: numpy on the CPU, torch on GPUs")
    parser.add_argument("--batch", type=int, default=32, metavar="B", help="sentences at a time; default 32")
    parser.add_argument("--repeat", type=int, default=5, metavar="R", help="times to measure; default 5")
    parser.add_argument("--json", action="store_true", help="one JSON object, embeddings included")
    parser.add_argument("--plot", metavar="FILE.png", help="measure and plot 1 to 6 ranks; on GPUs up to --ranks")
    options = parser.parse_args(arguments)
    if options.ranks not in rank_counts():
        parser.error(
            f"--ranks {options.ranks}: so many cannot share the model's {config()['num_attention_heads']} heads evenly: "
            f"take {', '.join(map(str, rank_counts()))}"
        )
    for name in ("batch", "repeat"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be at least 1")
    if options.plot:
        if options.json:
            parser.error("--plot prints a table, not --json")
        if not options.plot.endswith(".png") or not os.path.isdir(os.path.dirname(options.plot) or "."):
            parser.error(f"--plot {options.plot}: must be a .png in a directory that exists")
    options.library = options.library or ("torch" if options.device == "cuda" else "numpy")
    if options.device == "cuda":
        if options.library != "torch":
            parser.error(f"--library {options.library}: arrays on GPUs are PyTorch's")
        check_gpus(parser, options.ranks)
    for sentence in options.sentences:
        try:
            sentence.encode()
        except UnicodeEncodeError:
            parser.error(f"{sentence!r} is not UTF-8 text")
    if options.file and options.sentences:
        parser.error("sentences come from --file or from the command line, not from both")
    if options.file:
        try:
            lines = (sys.stdin if options.file == "-" else open(options.file, encoding="utf-8")).read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            parser.error(f"--file {options.file}: {error}")
        options.sentences = [line for line in lines if line.strip()]
        if not options.sentences:
            parser.error(f"--file {options.file}: there are no sentences in it")
    return options


def check_gpus(parser, ranks):
    try:
        import torch
    except ImportError:
        parser.error("--device cuda: PyTorch is not installed here")
    if torch.cuda.device_count() < ranks:
        parser.error(f"--device cuda --ranks {ranks}: PyTorch sees {torch.cuda.device_count()} GPUs, a rank needs one each")


def main(arguments=None):
    options = parse(arguments)
    own = not options.sentences
    sentences = options.sentences or [sentence for pair in PAIRS for sentence in pair]
    if options.plot:
        from plot import measure_and_plot

        return measure_and_plot(options, sentences)

    batches = list(Tokenizer().batches(sentences, options.batch))
    most = max(ids.size for ids, _ in batches)
    with Ranks([options.ranks], options.library, options.device, most) as ranks:
        # The first time is not like the others, so that it is not counted.
        embeddings, samples = embed_on(ranks, options.ranks, batches, 1 + options.repeat)
    compute, reduces = median(samples[1:])
    checks = check(embeddings, embed_alone(batches, "numpy"))
    if own:
        checks.update(check_pairs(embeddings[0]))
    failed = [what for what, (holds, _) in checks.items() if not holds]

    if options.json:
        result = {
            "ranks": options.ranks,
            "device": options.device,
            "library": options.library,
            "sentences": sentences,
            "tokens": sum(int(lengths.sum()) for _, lengths in batches),
            "tokens_with_padding": sum(ids.size for ids, _ in batches),
            "ms_per_layer": {"compute": compute, "all_reduce": reduces},
            "checks": {what: {"holds": holds, "details": details} for what, (holds, details) in checks.items()},
            "embeddings": embeddings[0].tolist(),
        }
        print(json.dumps(result))
    else:
        if len(sentences) > 1:
            print("cosine  sentence  ~  the most similar one")
            for sentence, (cosine, other) in zip(sentences, nearest(embeddings[0])):
                print(f"{cosine:6.3f}  {sentence}  ~  {sentences[other]}")
        for what, (holds, details) in checks.items():
            print(f"{'ok' if holds else 'WRONG':6}  {what}{': ' if details else ''}{details}")
        print(
            f"{compute + reduces:.2f} ms per layer on {options.ranks} ranks, median of {options.repeat}: "
            f"compute {compute:.2f}, all-reduces {reduces:.2f} ({options.library} on {options.device}, "
            f"{len(sentences)} sentences in batches of up to {options.batch})"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RanksFailed as failure:
        sys.exit(f"run.py: the ranks failed\n{failure}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # of a reader like head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
