"""The fake CUDA device, for whichever test asks for it."""

from cuda_doubles import fake_cuda

__all__ = ["fake_cuda"]
