"""Time per layer against the number of ranks, as a picture."""

import datetime
import os
import platform
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot
import numpy

from model import Tokenizer
from ranks import Ranks
from run import check, embed_alone, median, per_layer

COUNTS = [1, 2, 3, 4, 6]
# Two that stay apart in any kind of colour vision.
COMPUTE, REDUCE = "#4477aa", "#ee7733"


def measure_and_plot(options, sentences):
    """The counts take turns, so that what else the machine does meanwhile falls on all of them."""
    path = Path(options.plot)
    counts = COUNTS
    if options.device == "cuda":
        counts = [count for count in COUNTS if count <= options.ranks]
    # One batch of one sentence, and one of many: the given ones, as often as it takes.
    many = (sentences * (options.batch // len(sentences) + 1))[: options.batch]
    batches = [next(Tokenizer().batches(part, len(part))) for part in ([max(sentences, key=len)], many)]
    alone = [embed_alone([batch], "numpy") for batch in batches]
    samples = {}
    before = os.getloadavg()[0]
    with Ranks(counts, options.library, options.device, max(ids.size for ids, _ in batches)) as ranks:
        for turn in range(options.repeat):
            for count in counts:
                for number, (ids, lengths) in enumerate(batches):
                    # The first of a turn is not counted: another count's weights are in the caches.
                    embeddings, seconds = ranks.embed(count, ids, lengths, 4)
                    samples.setdefault((number, count), []).extend(per_layer([times]) for times in seconds[1:])
                    wrong = [
                        f"{what}: {details}"
                        for what, (holds, details) in check(numpy.array(embeddings), alone[number]).items()
                        if not holds
                    ]
                    if wrong:
                        print(f"WRONG  on {count} ranks: {'; '.join(wrong)}")
                        return 1

    titles = [f"{ids.shape[0]} sentence{'s' * (ids.shape[0] > 1)} of {ids.shape[1]} tokens" for ids, _ in batches]
    rows = [[median(samples[number, count]) for count in counts] for number in range(len(batches))]
    for title, row in zip(titles, rows):
        print(f"{title}, ms per layer, medians of {3 * options.repeat}\n ranks  compute  all-reduces    both")
        for count, (compute, reduces) in zip(counts, row):
            print(f"{count:6} {compute:8.3f} {reduces:12.3f} {compute + reduces:7.3f}")
    places = cores() if options.device == "cpu" else options.ranks
    draw(path, counts, titles, rows, places, caption(options, before))
    print(f"{path}: checked on every count against the single-process embeddings")
    return 0


def draw(path, counts, titles, rows, places, text):
    """`rows`: for each title and count (compute, all-reduces) in ms; `places`: how many ranks can work at once."""
    figure, panels = pyplot.subplots(1, len(titles), figsize=(9, 4.2), layout="constrained")
    x = numpy.arange(len(counts))
    for panel, title, row in zip(panels, titles, rows):
        compute, reduces = numpy.array(row).T
        crowded = [i for i, count in enumerate(counts) if count > places]
        if crowded:
            panel.axvspan(crowded[0] - 0.5, len(counts) - 0.5, color="0.93", zorder=0)
            panel.text(
                (crowded[0] + len(counts) - 1) / 2, 0.985, "more ranks than cores", transform=panel.get_xaxis_transform(),
                ha="center", va="top", color="0.35", fontsize=9,
            )  # fmt: skip
        panel.bar(x, compute, 0.6, color=COMPUTE, label="compute")
        panel.bar(x, reduces, 0.6, bottom=compute, color=REDUCE, label="all-reduces and waiting")
        ideal = compute[0] / numpy.array(counts[1:])
        panel.plot(x[1:], ideal, "k_", markersize=26, markeredgewidth=1.5, label="one rank's compute / ranks")
        for i, total in enumerate(compute + reduces):
            panel.text(i, total, f"{total:.2f}" if total < 10 else f"{total:.1f}", ha="center", va="bottom", fontsize=9)
        panel.set_title(title, fontsize=11)
        panel.set_xticks(x, counts)
        panel.set_xlim(-0.5, len(counts) - 0.5)
        panel.set_ylim(0, 1.22 * (compute + reduces).max())
        panel.set_xlabel("ranks")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("ms per layer (median)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)
    figure.supxlabel(text, fontsize=8, color="0.35")
    figure.savefig(path, dpi=110)


def caption(options, load):
    """Which machine, what and when."""
    date = datetime.datetime.now(datetime.timezone.utc).date()
    if options.device == "cuda":
        import torch

        where = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    else:
        where = f"{cores()} cores, {_processor()}; load before the run {load:.1f}"
    return (
        f"all-MiniLM-L6-v2, tensor-parallel, fp32, {options.library}, one thread a rank; all-reduces by symm\n"
        f"{where}; {date}"
    )


def cores():
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def _processor():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
