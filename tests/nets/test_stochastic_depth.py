"""Stochastic depth."""

import numpy as np
import pytest
import torch
from torch import nn

import bitprint as bp
from bitprint.methods import create
from bitprint.nets.stochastic_depth import StochasticDepth
from bitprint.training.distributed import Workers
from bitprint.training.whole_batch import whole_batches


def depth(share):
    layer = StochasticDepth()
    layer.dropout.p = share
    return layer


def test_whole_images_are_skipped_and_the_mean_stays():
    torch.manual_seed(0)
    branch = torch.rand(2000, 3, 2, 2) + 1
    out = depth(0.2)(branch)
    skipped = (out == 0).flatten(1)
    assert torch.equal(skipped.all(dim=1), skipped.any(dim=1))
    skipped = skipped[:, 0]
    assert abs(skipped.sum().item() - 400) < 4 * (2000 * 0.2 * 0.8) ** 0.5
    assert torch.equal(out[~skipped], 1.25 * branch[~skipped])


def test_a_skipped_block_has_no_gradient():
    torch.manual_seed(0)
    branch = torch.ones(50, 3, 2, 2, requires_grad=True)
    out = depth(0.5)(branch)
    out.sum().backward()
    skipped = out[:, 0, 0, 0] == 0
    assert 0 < skipped.sum() < 50
    assert branch.grad[skipped].abs().max() == 0
    assert branch.grad[~skipped].min() == 2


@pytest.mark.parametrize("layer", [depth(0.5).eval(), depth(0.0)])
def test_nothing_is_skipped_in_evaluation_nor_at_share_zero(layer):
    branch = torch.rand(20, 3, 2, 2)
    assert layer(branch) is branch


def test_processes_skip_what_one_process_would():
    net = nn.Sequential(nn.Conv2d(3, 3, 1), depth(0.5))
    images = torch.rand(9, 3, 2, 2)
    torch.manual_seed(0)
    alone = net(images)
    for rank in range(2):
        workers = Workers(rank, 2)
        workers.batch = 9
        torch.manual_seed(0)
        with whole_batches(net, workers):
            torch.testing.assert_close(net(workers.part(images)), workers.part(alone))


def test_the_plan_says_how_many_are_skipped():
    options = {"backbone": "efficientnet-lite0", "drop_blocks": 0.3, "epochs": 1}
    images = np.zeros((4, 8, 8, 3), np.uint8)
    hasher = create("dpsh", bits=4, batch_size=4, lr=0.0, **options).fit(images, [0, 0, 1, 1])
    layers = [layer for layer in hasher.net_.modules() if isinstance(layer, StochasticDepth)]
    assert layers
    assert {layer.dropout.p for layer in layers} == {0.3}


def test_a_network_without_blocks_is_refused():
    images = np.zeros((4, 8, 8, 3), np.uint8)
    hasher = bp.create("dpsh", bits=4, backbone="small", drop_blocks=0.3)
    with pytest.raises(ValueError, match="small has no blocks to skip: drop_blocks must be 0"):
        hasher.fit(images, [0, 0, 1, 1])
