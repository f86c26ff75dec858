import math

import pytest
import torch

from bitprint.training.losses import (
    classification_loss,
    log_cosh,
    pair_loss,
    quantization_loss,
    straight_through_sign,
)
from bitprint.training.state import State


def example(count=7, batch=3, bits=5, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    outputs = scale * torch.randn(count, bits, dtype=torch.float64, generator=generator)
    similar = torch.rand(count, count, generator=generator) < 0.4
    similar = similar | similar.t()
    return outputs[:batch].clone().requires_grad_(), outputs, similar[:batch], similar


def test_pair_loss_matches_plain_loops():
    hashed, buffer, similar, _ = example()
    expected = 0.0
    for i in range(len(hashed)):
        for j in range(len(buffer)):
            theta = sum((hashed[i] * buffer[j]).tolist()) / 2
            expected += math.log(1 + math.exp(theta)) - bool(similar[i, j]) * theta
    torch.testing.assert_close(pair_loss(hashed, buffer, similar).item(), expected)


def test_pair_gradient_is_that_of_the_whole_objective():
    """Although the buffer is constant, the batch has the gradient of the sum over all pairs."""
    hashed, buffer, similar, all_similar = example()
    pair_loss(hashed, buffer, similar).backward()
    free = buffer.clone().requires_grad_()
    theta = free @ free.t() / 2
    (torch.log1p(theta.exp()) - all_similar * theta).sum().backward()
    torch.testing.assert_close(hashed.grad, free.grad[: len(hashed)])


def test_weighted_pair_gradient_matches_plain_loops():
    hashed, buffer, similar, _ = example()
    own = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)
    every = torch.linspace(0.2, 2.0, len(buffer), dtype=torch.float64)
    kinds = torch.tensor([0.7, 4.0], dtype=torch.float64)
    loss = pair_loss(hashed, buffer, similar, (own, every), kinds)
    loss.backward()
    expected, total = torch.zeros_like(hashed), 0.0
    for i in range(len(hashed)):
        for j in range(len(buffer)):
            theta = sum((hashed[i] * buffer[j]).tolist()) / 2
            same = bool(similar[i, j])
            weight = (own[i] * every[j] * kinds[int(same)]).item()
            total += weight * (math.log(1 + math.exp(theta)) - same * theta)
            # Two ordered pairs, each with the gradient h_j / 2 of t.
            expected[i] += weight * (1 / (1 + math.exp(-theta)) - same) * buffer[j]
    torch.testing.assert_close(loss.item(), total)
    torch.testing.assert_close(hashed.grad, expected)


def test_pair_loss_of_large_outputs_is_finite():
    hashed, buffer, similar, _ = example(scale=100.0)
    loss = pair_loss(hashed, buffer, similar)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(hashed.grad).all()


def test_quantization_loss_matches_plain_loops():
    hashed, _, _, _ = example()
    signs = torch.where(hashed.detach() >= 0.2, 1.0, -1.0)
    expected = sum(
        (b - h) ** 2
        for row, codes in zip(hashed.tolist(), signs.tolist(), strict=True)
        for h, b in zip(row, codes, strict=True)
    )
    torch.testing.assert_close(quantization_loss(hashed, signs).item(), expected)


def test_log_cosh_is_the_naive_form_where_that_is_finite():
    values = torch.linspace(-20, 20, 401, dtype=torch.float64, requires_grad=True)
    found = log_cosh(values)
    expected = [math.log(math.cosh(value)) for value in values.tolist()]
    torch.testing.assert_close(found.tolist(), expected, rtol=1e-12, atol=1e-12)
    found.sum().backward()
    torch.testing.assert_close(values.grad, torch.tanh(values.detach()))


def test_log_cosh_of_large_values_is_finite():
    values = torch.tensor([-1e30, -100.0, 100.0, 1e30], requires_grad=True)
    found = log_cosh(values)
    torch.testing.assert_close(found, values.detach().abs() - math.log(2))
    found.sum().backward()
    assert values.grad.tolist() == [-1, -1, 1, 1]


def test_classification_loss_of_one_label():
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [9.0, 9.0]])
    state = State(torch.tensor([1, 0, 1, 0]), torch.zeros(4, 2), batch_size=3)
    found = classification_loss(logits[:2], torch.tensor([2, 3]), state)
    assert found.item() == pytest.approx(math.log(2) + math.log(4 / 3))


def test_classification_loss_of_several_labels():
    logits = torch.tensor([[0.0, math.log(3)], [-math.log(3), 0.0]])
    matrix = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    state = State(matrix, matrix, batch_size=3)
    found = classification_loss(logits, torch.tensor([1, 2]), state)
    assert found.item() == pytest.approx(2 * math.log(2) + 2 * math.log(4 / 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_straight_through_sign_has_identity_gradient(dtype):
    numbers = [-1e30, -0.3, -0.0, 0.0, 1e-30, 0.7, 1e30]
    values = torch.tensor(numbers, dtype=dtype, requires_grad=True)
    signs = straight_through_sign(values)
    assert signs.dtype == dtype
    assert signs.tolist() == [-1, -1, 1, 1, 1, 1, 1]  # exact, despite the large values
    pull = torch.arange(7, dtype=dtype)
    (pull * signs.square()).sum().backward()  # the gradient of the square is 2 * sign
    assert values.grad.tolist() == [0, -2, 4, 6, 8, 10, 12]
