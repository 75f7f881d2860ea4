"""Tests of run.py and what it is made of. Run by test.sh."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import arrays  # first: it says how many threads NumPy may have

import numpy
import pytest
import symm

import run
from model import Model, Tokenizer
from ranks import Ranks, RanksFailed

HERE = Path(__file__).resolve().parent
COUNTS = [1, 2, 3, 4]
# Of sentence-transformers' computing to this one: another library's sums, exponentials and error functions.
REFERENCE_TOLERANCE = 5e-6


@pytest.fixture(scope="module")
def reference():
    """Sentences, and their embeddings by sentence-transformers: see reference.py."""
    with numpy.load(HERE / "reference.npz") as file:
        return [str(sentence) for sentence in file["sentences"]], file["embeddings"]


@pytest.fixture(scope="module")
def batches(reference):
    """Of unequal sizes, with much padding and with none."""
    batches = list(Tokenizer().batches(reference[0], 3))
    assert [ids.shape[0] for ids, _ in batches] == [3, 3, 2]
    return batches


@pytest.fixture(scope="module")
def alone(batches):
    return run.embed_alone(batches, "numpy")


@pytest.fixture(scope="module")
def ranks(batches):
    with Ranks(COUNTS, most_tokens=max(ids.size for ids, _ in batches)) as ranks:
        yield ranks


def difference(a, b):
    return float(numpy.abs(a - b).max())


def test_the_whole_model_agrees_with_sentence_transformers(reference, alone):
    assert alone.dtype == numpy.float32 and alone.shape == reference[1].shape == (8, 384)
    assert difference(alone, reference[1]) <= REFERENCE_TOLERANCE


def test_cosines_are_those_of_the_model_s_documentation(reference, alone):
    assert reference[0][2] == "He drove to the stadium."
    cosines = alone[:3] @ alone[:3].T
    expected = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    assert difference(cosines, expected) <= 0.00006  # they are given to four places


@pytest.mark.parametrize("count", COUNTS)
def test_ranks_get_the_single_process_embeddings_to_rounding(ranks, reference, batches, alone, count):
    embeddings, seconds = run.embed_on(ranks, count, batches)
    assert embeddings.shape == (count, 8, 384)
    assert difference(embeddings, alone) <= run.TOLERANCE
    assert difference(embeddings, reference[1]) <= REFERENCE_TOLERANCE
    assert all(compute > 0 and reduces > 0 for compute, reduces in seconds)


@pytest.mark.parametrize("count", COUNTS)
def test_ranks_get_the_same_bits_every_time(ranks, batches, count):
    first, _ = run.embed_on(ranks, count, batches)
    again, _ = run.embed_on(ranks, count, batches)
    assert {got.tobytes() for got in first} == {got.tobytes() for got in again} == {first[0].tobytes()}


def test_padding_changes_nothing_but_rounding(reference, alone):
    """Nor does the company of other sentences."""
    singly = run.embed_alone(Tokenizer().batches(reference[0], 1), "numpy")
    assert difference(singly, alone) <= run.TOLERANCE


def test_paraphrases_are_nearest_to_each_other(ranks, batches):
    sentences = [sentence for pair in run.PAIRS for sentence in pair]
    ids, lengths = next(Tokenizer().batches(sentences, len(sentences)))
    assert ids.size <= max(ids.size for ids, _ in batches)  # what the ranks' windows were made for
    embeddings, _ = ranks.embed(3, ids, lengths)
    pairs, others = [], []
    cosines = embeddings[0] @ embeddings[0].T
    for i in range(len(sentences)):
        for j in range(i):
            (pairs if i ^ 1 == j else others).append(cosines[i, j])
    assert len(pairs) == 6 and min(pairs) > 0.4 and max(others) < 0.4
    assert run.check_pairs(embeddings[0]) == {"each sentence is nearest to its paraphrase": (True, "")}
    (holds, details), = run.check_pairs(numpy.roll(embeddings[0], 1, axis=0)).values()
    assert not holds and details


@pytest.mark.parametrize(
    "rank, change, bits, rounding",
    [
        (1, 0, True, True),
        (1, 1e-7, False, True),
        (0, 1e-5, False, False),
        (1, numpy.nan, False, False),
        (slice(None), 1e-5, True, False),
    ],
)
def test_checks_see_what_differs(alone, rank, change, bits, rounding):
    got = numpy.stack([alone, alone])
    got[rank, 3, 200] += numpy.float32(change)
    assert [holds for holds, _ in run.check(got, alone).values()] == [bits, rounding]


def test_a_killed_rank_ends_the_others_which_name_it(batches):
    ids, lengths = batches[0]
    with Ranks([3], most_tokens=ids.size) as ranks:
        ranks.start(3, ids, lengths, repeat=10**6)
        time.sleep(1)  # of hours of work, so that they are in the middle of it
        assert all(process.is_alive() for process in ranks.processes)
        os.kill(ranks.processes[1].pid, signal.SIGKILL)
        with pytest.raises(RanksFailed) as failure:
            ranks.result(3)
    assert failure.value.reasons[1] == "ended by SIGKILL"
    for rank in (0, 2):
        error = failure.value.reasons[rank]
        assert isinstance(error, symm.PeerError)
        assert error.rank == 1 and "rank 1" in str(error)
    assert not any(process.is_alive() for process in ranks.processes)


def test_what_a_rank_says_of_its_own_failure_arrives(batches):
    ids, lengths = batches[0]
    with Ranks([2], most_tokens=ids.size - 1) as ranks:  # too little memory in the windows
        with pytest.raises(RanksFailed, match="a batch of 10368 activations, and the window has room for 9984") as failure:
            ranks.embed(2, ids, lengths)
    assert sorted(failure.value.reasons) == [0, 1]


def command(*arguments, stdin=subprocess.DEVNULL, **options):
    return subprocess.run(
        [sys.executable, HERE / "run.py", *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        **options,
    )


@pytest.mark.parametrize("count", [5, 0, -1, 24])
def test_numbers_of_ranks_that_do_not_divide_the_heads_are_refused(count):
    done = command("--ranks", count)
    assert done.returncode == 2 and done.stdout == ""
    assert f"--ranks {count}: so many cannot share the model's 12 heads evenly: take 1, 2, 3, 4, 6, 12" in done.stderr


def test_the_model_itself_refuses_such_numbers():
    with pytest.raises(ValueError, match="^5 ranks cannot share 12 attention heads"):
        Model(arrays.NumPy(), 0, 5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--batch", 0], "--batch 0: must be at least 1"),
        (["--repeat", -1], "--repeat -1: must be at least 1"),
        (["--file", "/nonexistent"], "--file /nonexistent: "),
        (["--file", os.devnull], "there are no sentences in it"),
        (["--file", os.devnull, "one"], "not from both"),
        (["--plot", "plot.jpg"], "--plot plot.jpg: must be a .png in a directory that exists"),
        (["--plot", "/nonexistent/plot.png"], "must be a .png in a directory that exists"),
        (["--plot", "plot.png", "--json"], "not --json"),
        (["\udcff"], "is not UTF-8 text"),
        (["--device", "cuda", "--library", "numpy"], "arrays on GPUs are PyTorch's"),
    ],
)
def test_other_arguments_that_cannot_be_are_refused(arguments, message):
    done = command(*arguments)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_run_reads_a_file_and_writes_json(tmp_path, reference):
    (tmp_path / "sentences").write_text("\n\n".join(reference[0][:3]) + "\n", encoding="utf-8")
    done = command("--file", tmp_path / "sentences", "--ranks", 2, "--batch", 2, "--repeat", 1, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["sentences"] == reference[0][:3]
    assert difference(numpy.array(result["embeddings"]), reference[1][:3]) <= REFERENCE_TOLERANCE
    assert len(result["checks"]) == 2 and all(check["holds"] for check in result["checks"].values())
    assert (result["ranks"], result["library"], result["device"]) == (2, "numpy", "cpu")
    assert min(result["ms_per_layer"].values()) > 0


def test_run_measures_and_plots_every_count(tmp_path):
    done = command("--plot", tmp_path / "plot.png", "--batch", 2, "--repeat", 1, "a sentence")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line[:6].strip().isdecimal()]
    assert [int(row[0]) for row in rows if len(row) == 4] == 2 * [1, 2, 3, 4, 6]
    assert all(float(value) > 0 for row in rows if len(row) == 4 for value in row[1:])
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_tensors_of_pytorch_give_the_same_to_rounding(batches, alone):
    """By the code that GPUs run too."""
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    with Ranks([3], "torch", most_tokens=max(ids.size for ids, _ in batches)) as ranks:
        embeddings, _ = run.embed_on(ranks, 3, batches)
    assert all(holds for holds, _ in run.check(embeddings, alone).values())
