"""Criterion in a custom training loop: same results as `fit`, and resumable."""

import io
import re

import numpy as np
import pytest
import torch
from torch import nn

import bitprint as bp
from bitprint.methods import METHODS, DeepHasher
from bitprint.nets import create_trunk
from bitprint.training.loop import _mix

DEEP = [name for name, cls in METHODS.items() if issubclass(cls, DeepHasher)]
SHALLOW = [name for name in METHODS if name not in DEEP]
BITS, BATCH, EPOCHS, SEED = 12, 8, 4, 3  # twenty steps on 40 items
FEATURES = np.random.default_rng(0).standard_normal((40, 10)).astype(np.float32)
ONE_LABEL = np.arange(40) % 4
SEVERAL = (np.random.default_rng(1).random((40, 5)) < 0.4).astype(int)
SEVERAL[:2] = 0  # without any label

every_method = pytest.mark.parametrize("name", DEEP)
both_kinds = pytest.mark.parametrize("labels", [ONE_LABEL, SEVERAL], ids=["one label", "several"])


def create_criterion(name, labels, **options):
    return bp.criterion(
        name, BITS, labels, batch_size=BATCH, epochs=EPOCHS, **({"seed": SEED} | options)
    )


def begin(criterion):
    """Return a network and an optimizer in the initial state of `fit`."""
    torch.manual_seed(SEED)
    model = create_trunk("mlp", input_shape=(10,))
    net = nn.Sequential(model, criterion.make_head(model.out_features))
    return net, torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=5e-4)


def train_by_hand(criterion, net, optimizer, epochs=range(EPOCHS)):
    """Return the loss terms of every step and the metrics of every epoch."""
    steps, figures = [], []
    for epoch in epochs:
        torch.manual_seed(_mix(SEED, epoch))
        generator = torch.Generator().manual_seed(_mix(SEED, epoch) + 1)
        for rows in torch.randperm(40, generator=generator).split(BATCH):
            rows = rows.repeat(criterion._hasher.views)
            loss = criterion(net(torch.from_numpy(FEATURES)[rows]), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append({name: value.item() for name, value in criterion.parts.items()})
            assert loss.item() == pytest.approx(sum(steps[-1].values()), rel=1e-5)
        figures.append(criterion.end_epoch())
    return steps, figures


def train_by_fit(name, labels, **options):
    """Return the same values from `fit`, and the hasher."""
    training = bp.Training(
        epochs=EPOCHS,
        batch_size=BATCH,
        optimizer="adamw",
        lr=1e-3,
        schedule="constant",
        precision="float32",
    )
    given = {"training": training, "backbone": "mlp", "device": "cpu", "seed": SEED}
    hasher = bp.create(name, BITS, **given, **options)
    cls, steps = type(hasher), []

    def loss(self, *arguments):
        parts = cls.loss(self, *arguments)
        steps.append({name: value.item() for name, value in parts.items()})
        return parts

    hasher.__class__ = type(cls.__name__, (cls,), {"loss": loss})
    hasher.fit(FEATURES, labels)
    return steps, hasher


@both_kinds
@every_method
def test_criterion_in_a_loop_by_hand_has_the_losses_of_fit(name, labels):
    # A criterion does not know whether a model reads features, so both have equal weights.
    weights = {"mu": 50.0, "nu": 5.0, "eta": 2.0} if name == "dsdh" else {}
    expected, hasher = train_by_fit(name, labels, **weights)
    criterion = create_criterion(name, labels, **weights)
    net, optimizer = begin(criterion)
    steps, figures = train_by_hand(criterion, net, optimizer)
    assert len(steps) == len(expected) == 20
    assert steps == expected
    for epoch, (found, row) in enumerate(zip(figures, hasher.history_, strict=True)):
        assert found == {key: row[key] for key in found}
        batches = steps[5 * epoch : 5 * epoch + 5]
        for key in batches[0]:
            if key not in found:
                assert row[key] == pytest.approx(np.mean([batch[key] for batch in batches]))
    with torch.no_grad():
        outputs = net.eval()(torch.from_numpy(FEATURES))[:, : hasher._output_width()].numpy()
    np.testing.assert_allclose(outputs, hasher.project(FEATURES), rtol=1e-5, atol=1e-6)


OPTIONS = [
    ("dsdh", {"recipe": "paper"}),
    ("dsdh", {"mode": "authors", "eta": 3.0}),
    ("dsdh", {"codes_after": 2, "mu": 50.0, "nu": 5.0, "eta": 2.0}),
    ("dpsh", {"eta": 1.0}),
    ("dtsh", {"triplets": "batch"}),
    ("dqn", {"cycle": 1}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options_of_a_criterion_are_those_of_the_method(name, options):
    expected, _ = train_by_fit(name, ONE_LABEL, **options)
    criterion = create_criterion(name, ONE_LABEL, **options)
    assert train_by_hand(criterion, *begin(criterion))[0] == expected


@both_kinds
@every_method
def test_criterion_after_load_state_dict_continues_exactly(name, labels):
    criterion = create_criterion(name, labels)
    net, optimizer = begin(criterion)
    train_by_hand(criterion, net, optimizer, range(2))
    file = io.BytesIO()
    states = [part.state_dict() for part in (criterion, net, optimizer)]
    torch.save(states, file)
    straight = train_by_hand(criterion, net, optimizer, range(2, EPOCHS))

    file.seek(0)
    states = torch.load(file, weights_only=True)
    again = create_criterion(name, labels, seed=SEED + 1)  # its random codes have been replaced
    net, optimizer = begin(again)
    for part, state in zip((again, net, optimizer), states, strict=True):
        part.load_state_dict(state)
    if name == "dqn":  # the seed determines the initial codebooks only
        assert again.tensors.quantised
    assert train_by_hand(again, net, optimizer, range(2, EPOCHS)) == straight


def test_state_dict_of_a_criterion_has_labels_and_buffers():
    tensors = create_criterion("dsdh", ONE_LABEL).state_dict()
    assert tensors["labels"].tolist() == ONE_LABEL.tolist()
    assert set(tensors) == {"labels"} | {
        f"tensors.{key}" for key in ("U", "B", "changed", "weights", "kinds")
    }


def test_to_moves_labels_and_every_buffer():
    criterion = create_criterion("dsdh", SEVERAL).to("meta")
    buffers = dict(criterion.named_buffers())
    assert {"labels", "classes", "tensors.U", "tensors.B", "tensors.kinds"} <= set(buffers)
    assert {value.device.type for value in buffers.values()} == {"meta"}


def test_outputs_in_half_precision_have_a_float32_loss():
    criterion = create_criterion("dpsh", ONE_LABEL)
    outputs = torch.randn(4, BITS).to(torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = criterion(outputs, torch.arange(4))
    exact = create_criterion("dpsh", ONE_LABEL)(outputs.detach().float(), torch.arange(4))
    assert loss.dtype == torch.float32
    assert loss.item() == exact.item()
    loss.backward()
    assert outputs.grad.abs().sum() > 0


def test_stages_of_drsch_follow_the_epochs_of_the_loop():
    criterion = create_criterion("drsch", ONE_LABEL, stages=2)
    torch.manual_seed(0)
    outputs, losses = torch.randn(8, 2 * BITS), []
    for _ in range(EPOCHS):
        losses.append(criterion(outputs, torch.arange(8)).item())
        criterion.end_epoch()
    assert losses[0] == losses[1] != losses[2] == losses[3]


# ---- a hasher of the trained model


@every_method
def test_hasher_of_a_criterion_encodes_and_is_saved(name, tmp_path):
    criterion = create_criterion(name, ONE_LABEL)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
    head = criterion.make_head(32)
    net = nn.Sequential(model, head)
    train_by_hand(criterion, net, torch.optim.AdamW(net.parameters(), lr=1e-3), range(2))
    hasher = criterion.hasher(model, head, FEATURES)
    with torch.no_grad():
        outputs = net.eval()(torch.from_numpy(FEATURES))[:, : hasher._output_width()].numpy()
    np.testing.assert_allclose(hasher.project(FEATURES), outputs, rtol=1e-5, atol=1e-6)
    fitted = {key for key in vars(train_by_fit(name, ONE_LABEL)[1]) if key.endswith("_")}
    assert fitted <= set(vars(hasher))
    hasher.save(tmp_path)
    again = bp.load(tmp_path, backbone=nn.Sequential(nn.Linear(10, 32), nn.ReLU()))
    assert again.encode(FEATURES) == hasher.encode(FEATURES)


def test_hasher_of_dqn_has_the_codebooks_of_its_last_outputs():
    criterion = create_criterion("dqn", ONE_LABEL)
    model, head = nn.Identity(), criterion.make_head(10)
    hasher = criterion.hasher(model, head, FEATURES)
    codes = hasher.encode(FEATURES)
    outputs = torch.from_numpy(FEATURES)
    with torch.no_grad():
        error = np.square(codes.reconstruct() - head(outputs).numpy()).sum(axis=1).mean()
    assert error < 1e-6  # 40 outputs, 64 entries for each half
    assert not head.codebooks.any()  # the given head does not change


# ---- invalid input


def check_refused(message, *arguments, **options):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        bp.criterion(*arguments, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", SHALLOW)
def test_method_without_steps_has_no_criterion(name):
    check_refused(f"{name} has no criterion", name, 12, [0, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.1}, "a criterion has no option lr: set it in your own optimizer"),
        ({"augment": "flip"}, "a criterion has no option augment"),
        ({"training": bp.Training()}, "a criterion has no option training"),
        ({"backbone": "mlp"}, "a criterion has no option backbone"),
        ({"etta": 1.0}, "unknown option 'etta' (did you mean eta?)"),
        ({"eta": "strong"}, "eta must be a number, got 'strong'"),
        ({"eta": -1.0}, "eta must be a number >= 0, got -1.0"),
        ({"mode": "best"}, "mode must be paper, authors or balanced"),
        ({"recipe": "best"}, "recipe must be recommended, paper or original"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ],
)
def test_wrong_option_of_a_criterion_is_named(options, message):
    check_refused(message, "dsdh", 12, [0, 1], **options)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 1, 1], "all training images have the same labels"),
        ([], "there are no training images"),
        ([-1, 0], "class numbers must be integers >= 0"),
    ],
)
def test_constant_labels_are_refused(labels, message):
    check_refused(message, "dsdh", 12, labels)


def test_drsch_without_epochs_is_refused():
    check_refused("pass epochs=", "drsch", 12, [0, 1])
    check_refused("unknown method 'dsd'", "dsd", 12, [0, 1])


@pytest.mark.parametrize(
    ("outputs", "rows", "message"),
    [
        (torch.zeros(4, 13), [0, 1, 2, 3], "needs outputs of shape (n, 12), got (4, 13)"),
        (torch.zeros(12), [0], "needs outputs of shape (n, 12), got (12,)"),
        (torch.zeros(4, 12), [0, 1, 2], "rows must be 4 integers"),
        (torch.zeros(2, 12), [0.0, 1.0], "got torch.float32 of shape (2,)"),
        (torch.zeros(2, 12), [39, 40], "rows must be from 0 to 39, got 39 to 40"),
        (torch.zeros(2, 12), [-1, 0], "rows must be from 0 to 39, got -1 to 0"),
        (torch.zeros(2, 12, device="meta"), [0, 1], 'move it: criterion.to("meta")'),
        (np.zeros((2, 12)), [0, 1], "outputs must be a torch tensor, got ndarray"),
        (torch.zeros(8, 12), [0, 1, 2, 0, 1, 2, 0, 1], "not class numbers"),
    ],
)
def test_wrong_batch_is_refused_without_changes(outputs, rows, message):
    criterion = create_criterion("dpsh", ONE_LABEL)
    with pytest.raises(ValueError, match=re.escape(message)):
        criterion(outputs, rows)
    assert not criterion.tensors.U.any()


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [0, 1, 1, 0], [0, 0, 1, 1], [0, 1, 0]])
def test_views_in_another_order_are_refused(rows):
    criterion = create_criterion("cibhash", ONE_LABEL)
    message = r"cibhash compares 2 views of each image: call .*, rows.repeat\(2\)\)"
    with pytest.raises(ValueError, match=message):
        criterion(torch.zeros(len(rows), BITS), rows)
    criterion(torch.zeros(6, BITS), torch.tensor([0, 1, 2]).repeat(2))


def test_small_rows_of_two_views_are_not_taken_for_classes():
    criterion = create_criterion("crovca", ONE_LABEL, supervised=True)
    assert torch.isfinite(criterion(torch.randn(6, BITS), torch.tensor([0, 1, 2]).repeat(2)))


def test_labels_of_a_method_without_labels_are_counted_only():
    for labels in (np.zeros(9), ["a"] * 9, range(9)):
        criterion = create_criterion("bihalf", labels)
        assert len(criterion) == 9
        assert not criterion.labels.any()
    check_refused("there are no training images", "bihalf", 12, [])


def test_head_with_features_sets_the_width_of_outputs():
    criterion = create_criterion("bihalf", ONE_LABEL)
    outputs = criterion.make_head(7)(torch.randn(4, 7))
    assert outputs.shape == (4, BITS + 7)
    assert torch.isfinite(criterion(outputs, torch.arange(4)))
    with pytest.raises(ValueError, match=r"needs outputs of shape \(n, 19\), got \(4, 12\)"):
        criterion(outputs[:, :BITS], torch.arange(4))


def test_state_of_other_labels_is_refused():
    state = create_criterion("dpsh", ONE_LABEL).state_dict()
    with pytest.raises(ValueError, match="saved with other labels"):
        create_criterion("dpsh", ONE_LABEL[::-1].copy()).load_state_dict(state)
    with pytest.raises(ValueError, match="saved with other labels"):
        create_criterion("dpsh", ONE_LABEL[:20]).load_state_dict(state)


def test_names_of_classes_are_kept_with_the_hasher():
    names = np.array(["ant", "bee", "cat", "dog"])
    criterion = create_criterion("dpsh", names[ONE_LABEL])
    assert torch.equal(criterion.labels, torch.from_numpy(ONE_LABEL))
    hasher = criterion.hasher(nn.Identity(), criterion.make_head(10), FEATURES)
    assert hasher.label_names_ == ["ant", "bee", "cat", "dog"]


def test_hasher_of_other_items_is_refused():
    criterion = create_criterion("dpsh", ONE_LABEL)
    with pytest.raises(ValueError, match="39 training items but 40 labels"):
        criterion.hasher(nn.Identity(), criterion.make_head(10), FEATURES[1:])
