"""CutMix: position of the boxes, and their effect on the loss."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bitprint as bp
from bitprint.data import ImageSet
from bitprint.methods import DeepHasher
from bitprint.training.cutmix import draw_cut
from bitprint.training.loop import _mix
from bitprint.training.plan import Training

RNG = np.random.default_rng(0)
COUNT, BITS = 24, 6
LABELS = np.arange(COUNT) % 3
IMAGES = ImageSet(RNG.integers(0, 256, (COUNT, 16, 16, 3), np.uint8), labels=LABELS)


def draw(shape, chance=1.0, seed=0):
    return draw_cut(torch.Size((*shape, 3)), chance, torch.Generator().manual_seed(seed))


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32))
def test_a_box_is_inside_of_the_image_and_its_share_is_its_area(count, height, width, seed):
    cut = draw((count, height, width), seed=seed)
    assert sorted(cut.partners.tolist()) == list(range(count))
    images = torch.zeros((count, height, width, 3), dtype=torch.uint8)
    pasted = cut.paste(images, images + 1)
    assert images.sum() == 0
    assert pasted.shape == images.shape
    changed = pasted[0, :, :, 0].double().mean().item()
    assert changed == pytest.approx(1 - cut.share)
    # At most half of the image, except for rounding of the sides to pixels.
    assert changed <= (0.5**0.5 + 0.5 / height) * (0.5**0.5 + 0.5 / width)


def test_pasting_pixel_by_pixel():
    cut = draw((5, 12, 9), seed=3)
    images, others = torch.from_numpy(RNG.integers(0, 256, (2, 5, 12, 9, 3), np.uint8))
    pasted = cut.paste(images, others)
    for y in range(12):
        for x in range(9):
            inside = cut.top <= y < cut.top + cut.height and cut.left <= x < cut.left + cut.width
            assert torch.equal(pasted[:, y, x], (others if inside else images)[:, y, x])
    assert 0 < cut.share < 1


def test_half_of_the_batches_have_boxes_which_are_anywhere_and_of_any_size():
    cuts = [draw((4, 64, 64), chance=0.5, seed=seed) for seed in range(2000)]
    drawn = [cut for cut in cuts if cut is not None]
    # Four standard deviations of 2,000 coins, and of 1,000 areas uniform in 0..0.5.
    assert abs(len(drawn) - 1000) < 4 * (2000 / 4) ** 0.5
    areas = np.array([1 - cut.share for cut in drawn])
    assert abs(areas.mean() - 0.25) < 4 * 0.5 / 12**0.5 / len(drawn) ** 0.5
    tops = np.array([cut.top / (64 - cut.height) for cut in drawn if cut.height < 64])
    assert abs(tops.mean() - 0.5) < 4 / 12**0.5 / len(tops) ** 0.5
    assert min(cut.left for cut in drawn) == 0
    assert max(cut.left + cut.width for cut in drawn) == 64


def test_no_chance_no_box():
    assert all(draw((4, 8, 8), chance=0.0, seed=seed) is None for seed in range(50))


WEIGHTS = RNG.normal(size=COUNT)


class Weighted(DeepHasher):
    """Weight each output by its image; center them, so that the assignment of images matters."""

    name = "weighted"

    def loss(self, outputs, rows, state):
        state.tensors["U"][rows] = outputs.detach()
        centered = outputs[:, 0] - outputs[:, 0].mean()
        return {"value": (centered * torch.from_numpy(WEIGHTS)[rows]).sum()}


def fit():
    """Fit for one batch with learning rate 0; return the hasher and its buffers."""
    training = Training(epochs=1, batch_size=COUNT, lr=0.0, freeze_norms=True, cutmix=1.0)
    hasher = Weighted(BITS, backbone="small", training=training)
    kept = {}
    hasher.finish = lambda net, state, feed: kept.update(state.tensors)
    return hasher.fit(IMAGES), kept


def expected():
    """Order, box and pasted images of the first batch, drawn as the loop draws them."""
    generator = torch.Generator().manual_seed(_mix(0, 0) + 1)
    order = torch.randperm(COUNT, generator=generator)
    cut = draw_cut(torch.Size((COUNT, 16, 16, 3)), 1.0, generator)
    pixels = torch.from_numpy(IMAGES.pixels)[order]
    return order, cut, cut.paste(pixels, pixels[cut.partners])


def test_the_loss_is_the_mean_for_both_labels_in_proportion_to_their_areas():
    hasher, _ = fit()
    order, cut, pasted = expected()
    outputs = hasher.project(pasted.numpy())[:, 0].astype(float)
    as_own, as_other = (
        sum((outputs[i] - outputs.mean()) * WEIGHTS[row] for i, row in enumerate(rows.tolist()))
        for rows in (order, order[cut.partners])
    )
    by_hand = cut.share * as_own + (1 - cut.share) * as_other
    assert 0.5 < cut.share < 0.9
    assert by_hand != pytest.approx(as_own, rel=0.1)
    assert hasher.history_[0]["value"] == pytest.approx(by_hand, rel=1e-4)


def test_buffers_keep_outputs_under_the_image_that_got_the_box():
    hasher, kept = fit()
    order, _, pasted = expected()
    np.testing.assert_allclose(kept["U"][order], hasher.project(pasted.numpy()), atol=1e-6)


def test_features_have_no_boxes():
    rows = RNG.normal(size=(COUNT, 5)).astype(np.float32)
    options = {"epochs": 2, "lr": 1e-3, "backbone": "mlp"}
    plain = bp.create("dpsh", bits=BITS, **options).fit(rows, LABELS)
    mixed = bp.create("dpsh", bits=BITS, cutmix=1.0, **options).fit(rows, LABELS)
    np.testing.assert_array_equal(plain.project(rows), mixed.project(rows))
