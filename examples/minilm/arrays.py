"""What the model needs of an array library beyond the operators that NumPy and PyTorch share."""

import os
import time

# Ranks are what shares out the work. Libraries of linear algebra read these when they are loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy  # noqa: E402
import scipy.special  # noqa: E402


class NumPy:
    """Arrays of the host."""

    def __init__(self, device="cpu"):
        if device != "cpu":
            raise ValueError(f"NumPy's arrays are the host's, not of {device}: use PyTorch")

    def array(self, x):
        return numpy.ascontiguousarray(x)

    def of_window(self, window):
        return window.numpy()

    def to_numpy(self, x):
        return x

    def matmul(self, a, b, out):
        numpy.matmul(a, b, out=out)

    def softmax(self, x):
        """Over the last axis; overwrites x."""
        x -= x.max(axis=-1, keepdims=True)
        numpy.exp(x, out=x)
        x /= x.sum(axis=-1, keepdims=True)
        return x

    def gelu(self, x):
        """The exact one, by the error function, as the model was trained."""
        return x * (scipy.special.erf(x * numpy.float32(0.5**0.5)) + 1) * numpy.float32(0.5)

    def layer_norm(self, x, weight, bias, epsilon):
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = numpy.square(centred).mean(axis=-1, keepdims=True)
        return centred / numpy.sqrt(variance + numpy.float32(epsilon)) * weight + bias

    def unit(self, x):
        return x / numpy.sqrt(numpy.square(x).sum(axis=-1, keepdims=True))

    def mark(self):
        """A point in time, for seconds()."""
        return time.perf_counter()

    def seconds(self, start, end):
        return end - start


class PyTorch:
    """Tensors of the host, or of a GPU: there the work is enqueued on PyTorch's current stream, symm's too."""

    def __init__(self, device="cpu"):
        import torch

        self.torch = torch
        self.device = torch.device(device)
        torch.set_num_threads(1)
        # TF32 has ten bits of mantissa: no rounding of fp32.
        torch.backends.cuda.matmul.allow_tf32 = False
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def array(self, x):
        return self.torch.from_numpy(numpy.ascontiguousarray(x)).to(self.device)

    def of_window(self, window):
        return window.torch()

    def to_numpy(self, x):
        return x.cpu().numpy()

    def matmul(self, a, b, out):
        self.torch.matmul(a, b, out=out)

    def softmax(self, x):
        return self.torch.softmax(x, dim=-1)

    def gelu(self, x):
        return self.torch.nn.functional.gelu(x)

    def layer_norm(self, x, weight, bias, epsilon):
        return self.torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, epsilon)

    def unit(self, x):
        return self.torch.nn.functional.normalize(x, dim=-1)

    def mark(self):
        if self.device.type == "cpu":
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start, end):
        if self.device.type == "cpu":
            return end - start
        end.synchronize()
        return start.elapsed_time(end) / 1000


LIBRARIES = {"numpy": NumPy, "torch": PyTorch}
