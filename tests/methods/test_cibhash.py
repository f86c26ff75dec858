"""CIBHash: NT-Xent and KL divergence by plain loops, and random bits."""

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch

from bitprint.methods.cibhash import CIBHash, nt_xent

ROWS = torch.arange(4).repeat(2)


def parts_of(hasher, outputs, batch_size=5):
    state = reference.make_state(np.zeros(4, np.int64), batch_size)
    return hasher.loss(torch.as_tensor(outputs), ROWS[: len(outputs)], state)


def fixed_coins(monkeypatch, coins):
    monkeypatch.setattr(torch, "rand_like", lambda values: torch.as_tensor(coins).to(values))


def contrast(codes, temperature):
    """Return the NT-Xent loss of two stacked views, summed."""
    total, count = 0.0, len(codes)
    for i in range(count):
        cosines = [
            codes[i] @ codes[j] / np.linalg.norm(codes[i]) / np.linalg.norm(codes[j])
            for j in range(count)
        ]
        powers = np.exp(np.array(cosines) / temperature)
        total -= np.log(powers[(i + count // 2) % count] / (powers.sum() - powers[i]))
    return total


def test_loss_by_loops(monkeypatch):
    outputs, coins = reference.random_outputs(8, 5), np.random.default_rng(1).random((8, 5))
    fixed_coins(monkeypatch, coins)
    p = 1 / (1 + np.exp(-outputs))
    codes, divergence = np.where(p >= coins, 1.0, -1.0), 0.0
    for i, k in np.ndindex(4, 5):
        for some, other in ((p[i, k], p[4 + i, k]), (p[4 + i, k], p[i, k])):
            divergence += some * np.log(some / other) / 2
            divergence += (1 - some) * np.log((1 - some) / (1 - other)) / 2
    parts = parts_of(CIBHash(5, temperature=0.4, beta=0.7), outputs)
    assert parts["contrast"].item() == pytest.approx(contrast(codes, 0.4) / 10, rel=1e-10)
    assert parts["bottleneck"].item() == pytest.approx(0.7 * divergence / 5, rel=1e-10)


def test_nt_xent_of_real_codes_by_loops_and_its_gradient():
    codes = reference.random_outputs(8, 5)
    given = torch.tensor(codes, requires_grad=True)
    loss = nt_xent(given, 0.3)
    loss.backward()
    assert loss.item() == pytest.approx(contrast(codes, 0.3), rel=1e-10)
    expected = dsdh_reference.finite_differences(lambda at: contrast(at, 0.3), codes)
    np.testing.assert_allclose(given.grad, expected, rtol=1e-5, atol=1e-7)


def test_gradient_of_random_bits_is_that_of_their_probabilities(monkeypatch):
    outputs, coins = reference.random_outputs(8, 5), np.random.default_rng(1).random((8, 5))
    fixed_coins(monkeypatch, coins)
    given = torch.tensor(outputs, requires_grad=True)
    sum(parts_of(CIBHash(5, beta=0.7), given, batch_size=4).values()).backward()
    p = 1 / (1 + np.exp(-outputs))
    codes = np.where(p >= coins, 1.0, -1.0)
    passed = dsdh_reference.finite_differences(lambda at: contrast(at, 0.3) / 8, codes)

    def bottleneck(at):
        return parts_of(CIBHash(5, beta=0.7), at, batch_size=4)["bottleneck"].item()

    expected = passed * p * (1 - p) + dsdh_reference.finite_differences(bottleneck, outputs)
    np.testing.assert_allclose(given.grad, expected, rtol=1e-5, atol=1e-7)


def test_bits_are_positive_with_their_probability(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "bitprint.methods.cibhash.nt_xent",
        lambda codes, temperature: drawn.append(codes.detach()) or codes.sum(),
    )
    torch.manual_seed(0)
    outputs = np.tile([-2.0, 0.0, 1.0], (8, 1))
    for _ in range(500):
        parts_of(CIBHash(3), outputs)
    share = (torch.cat(drawn) > 0).double().mean(dim=0).numpy()
    np.testing.assert_allclose(share, 1 / (1 + np.exp([2.0, 0.0, -1.0])), atol=0.03)


def test_divergence_of_large_outputs_is_finite():
    outputs = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    parts = CIBHash(1).loss(outputs, torch.zeros(2).long(), reference.make_state(np.zeros(1, int)))
    sum(parts.values()).backward()
    assert torch.isfinite(outputs.grad).all()


def test_one_image_has_no_negatives():
    assert parts_of(CIBHash(3), reference.random_outputs(2, 3))["contrast"].item() == 0


def test_views_of_an_image_get_near_codes():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((60, 20)).astype(np.float32)
    hasher = CIBHash(24, epochs=60, batch_size=20, noise=0.3, seed=1).fit(data)
    assert hasher.settings_["backbone"] == "mlp:0"
    noisy = data + 0.3 * rng.standard_normal(data.shape).astype(np.float32)
    distances = hasher.encode(noisy).hamming(hasher.encode(data))
    assert np.diag(distances).mean() < 4
    assert distances[~np.eye(60, dtype=bool)].mean() > 10
    assert hasher.history_[-1]["contrast"] < hasher.history_[0]["contrast"] / 1.5


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"beta": -1.0}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a number"):
        CIBHash(4, **options).fit(np.eye(3))
