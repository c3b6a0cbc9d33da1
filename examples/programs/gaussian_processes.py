"""GPyTorch: a training step of exact and of stochastic variational Gaussian-process regression.

    python examples/programs/gaussian_processes.py [--small]        # needs gpytorch: pip install -e ".[programs]"

The models of the package's tutorials: an RBF kernel with a scale and a length for each dimension, the exact marginal likelihood
or the ELBO, Adam. Exact regression is done in two ways. By Cholesky (`max_cholesky_size`), the products inside cuSOLVER
are out of mm32's reach, but it takes those of the derivative. By conjugate gradients with random probes, GPyTorch's default for
many points, there are products with 11 columns, which are bound by memory.

GPyTorch's jitter on the diagonal is different in float64. Here both dtypes have float32's, because the truth must be of the same
problem. GPyTorch computes Cholesky factors of variational models in float64 whatever the model's dtype; mm32 does not take those
products.
"""

from __future__ import annotations

import contextlib
import copy
import sys

import gpytorch
import torch
from linear_operator.utils.errors import NanError, NotPSDError

from mm32.bench import models

MEAN, KERNEL = gpytorch.means.ConstantMean, gpytorch.kernels.RBFKernel


def kernel(dimensions: int) -> gpytorch.kernels.Kernel:
    return gpytorch.kernels.ScaleKernel(KERNEL(ard_num_dims=dimensions))


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = MEAN(), kernel(x.shape[1])

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, inducing: torch.Tensor) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        super().__init__(
            gpytorch.variational.VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True)
        )
        self.mean_module, self.covar_module = MEAN(), kernel(inducing.shape[1])

    forward = Exact.forward


@contextlib.contextmanager
def same_problem(cholesky_up_to: int):
    """Give float32 and float64 the same jitter and the same random probes, and use Cholesky for at most so many points."""
    s = gpytorch.settings
    with contextlib.ExitStack() as stack:
        stack.enter_context(s.cholesky_jitter(float_value=1e-6, double_value=1e-6))
        stack.enter_context(s.variational_cholesky_jitter(float_value=1e-4, double_value=1e-4))
        stack.enter_context(s.max_cholesky_size(cholesky_up_to))
        stack.enter_context(models.SameDraws(0))
        try:
            yield
        except (NotPSDError, NanError) as error:
            raise torch.linalg.LinAlgError(str(error)) from error


def data(device: str, count: int, dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    with torch.device(device):
        x = torch.rand(count, dimensions)
        return x, torch.sin(x.sum(1) * (4 / dimensions**0.5)) + 0.1 * torch.randn(count)


def step_of(model, likelihood, objective, x: torch.Tensor, y: torch.Tensor, cholesky_up_to: int) -> models.Step:
    parameters = list(dict.fromkeys([*model.parameters(), *likelihood.parameters()]))
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    model.train()
    likelihood.train()

    def step() -> models.Outcome:
        optimizer.zero_grad()
        with same_problem(cholesky_up_to):
            loss = -objective(model(x), y)
            loss.backward()
        optimizer.step()
        gradient = [p.grad for p in parameters if p.grad is not None]
        if not all(bool(t.isfinite().all()) for t in (loss, *gradient)):
            raise torch.linalg.LinAlgError("the loss or its gradient is not finite")
        # For an exact model these are few numbers: 2 and a length for each dimension, and the loss.
        return {"loss": [loss.detach()], "gradient": gradient}

    return step


def exact(device: str, count: int, dimensions: int, name: str, how: str, cholesky_up_to: int) -> models.Model:
    inputs, values = data(device, count, dimensions)

    def prepare(dtype: torch.dtype) -> models.Step:
        x, y = inputs.to(dtype), values.to(dtype)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device, dtype)
        model = Exact(x, y, likelihood).to(device, dtype)
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        return step_of(model, likelihood, objective, x, y, cholesky_up_to)

    return models.Model(name, f"GPyTorch's ExactGP, {count} points in {dimensions} dimensions, {how}", prepare)


def variational(device: str, count: int, dimensions: int, inducing: int) -> models.Model:
    inputs, values = data(device, count, dimensions)
    weights = Variational(inputs[:inducing].clone()).to(device)

    def prepare(dtype: torch.dtype) -> models.Step:
        x, y = inputs.to(dtype), values.to(dtype)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device, dtype)
        model = copy.deepcopy(weights).to(dtype)
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=count)
        return step_of(model, likelihood, objective, x, y, inducing)

    what = f"GPyTorch's ApproximateGP, {inducing} inducing points, a batch of {count} in {dimensions} dimensions"
    return models.Model("variational GP", f"{what}: ELBO, gradient, Adam", prepare)


def make(device: str, small: bool) -> list[models.Model]:
    points, more, batch, inducing = (300, 1000, 256, 64) if small else (16384, 24576, 16384, 4096)
    step = "marginal likelihood, gradient, Adam"
    return [
        exact(device, points, 8, "exact GP, Cholesky", f"by Cholesky: {step}", points),
        exact(device, more, 8, "exact GP, conjugate gradients", f"by conjugate gradients: {step}", 800),
        variational(device, batch, 8, inducing),
    ]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
