"""Muon: momentum whose matrix updates are orthogonalised (K. Jordan et al., 2024).

Written here in float32 because the library version works in bfloat16, which is slow on a CPU.
"""

from collections.abc import Iterable

import torch

# Quintic Newton-Schulz coefficients of the publication: singular values go to about 1 in 5 rounds.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with all singular values near 1; same shape [rows, columns], float32."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Muon:
    """Nesterov momentum, orthogonalised, for two-dimensional parameters only."""

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], momentum: float, decay: float
    ) -> None:
        """`decay`: weight decay per unit of rate."""
        self._pairs = [(weight, torch.zeros_like(weight)) for weight in parameters]
        self._momentum = momentum
        self._decay = decay

    def step(self, rate: float) -> None:
        """One update of every parameter from its gradient."""
        with torch.no_grad():
            for weight, velocity in self._pairs:
                if weight.grad is None:
                    raise ValueError("a parameter without a gradient cannot be updated")
                velocity.mul_(self._momentum).add_(weight.grad)
                update = orthogonalise(weight.grad + self._momentum * velocity)
                scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.mul_(1.0 - rate * self._decay)
                weight.add_(update, alpha=-rate * scale)
