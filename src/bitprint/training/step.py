"""Step: one training step."""

from __future__ import annotations

import torch
from torch import Tensor

from bitprint.nets.network import BATCH_NORMS, HashNetwork
from bitprint.training.augment import augment
from bitprint.training.average import finish_average, follow, start_average, without_average
from bitprint.training.cutmix import Cut, draw_cut
from bitprint.training.distributed import Workers
from bitprint.training.graphs import Captured
from bitprint.training.plan import Training
from bitprint.training.state import Objective, State


class Step:
    """One training step: augment a batch, compute its loss and update the network.

    Parameters
    ----------
    net : HashNetwork
        On the training device.
    objective : Objective
        Loss of the method.
    state : State
        Labels and buffers.
    training : Training
        Training options.
    workers : Workers
        The processes that share each batch.
    """

    def __init__(
        self,
        net: HashNetwork,
        objective: Objective,
        state: State,
        training: Training,
        workers: Workers,
    ) -> None:
        self.optimizer = make_optimizer(net, training)
        self._net = net
        self._objective = objective
        self._state = state
        self._training = training
        self._workers = workers
        if training.trunk_lr == 0:
            net.trunk.requires_grad_(False)  # saves the backward pass of the backbone
        size = objective.views * training.batch_size
        self._captured = Captured(net, size) if net.trunk.optimized else net
        if training.average:
            start_average(net, state)

    def begin_epoch(self) -> None:
        """Set the network to training mode."""
        self._net.train()
        if self._training.freeze_norms:
            for layer in self._net.trunk.modules():
                if isinstance(layer, BATCH_NORMS):
                    layer.eval()

    def __call__(
        self, rows: Tensor, items: Tensor, steps: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Train on one batch; return the parts of its loss.

        Parameters
        ----------
        rows : Tensor of int64, shape (n,)
            Rows of the batch in the training set, repeated for several views.
        items : Tensor
            This process's part of the batch.
        steps : int
            Steps done before this one.
        generator : torch.Generator
            Source of the random augmentation.
        """
        cut = None
        if items.ndim == 4:
            items = self._augmented(items, len(rows), generator)
            items, cut = self._with_boxes(items, len(rows), generator)
        parts = self._loss(self._outputs(items, len(rows)), rows, cut)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(parts.values())).sum().backward()
        self._workers.sum_gradients(self._net)
        self.optimizer.step()
        if self._training.average:
            follow(self._net, self._state, self._training.average, steps)
        return {name: value.detach() for name, value in parts.items()}

    def finish(self) -> None:
        """Load the averaged weights into the network, if they are used."""
        if self._training.average:
            finish_average(self._net, self._state)

    def set_rate(self, epoch: int, progress: float) -> None:
        """Set the learning rates; see `Training.rate`."""
        head, trunk = self.optimizer.param_groups
        head["lr"] = self._training.rate(epoch, progress)
        trunk["lr"] = self._training.trunk_rate(epoch, progress)

    def _outputs(self, items: Tensor, count: int) -> Tensor:
        if self._workers.size == 1:
            return self._captured(items)
        return self._workers.forward(self._net, items, count)

    def _loss(self, outputs: Tensor, rows: Tensor, cut: Cut | None) -> dict[str, Tensor]:
        """Return the parts of the loss; with CutMix, the weighted mean for both labels."""
        parts = self._objective.loss(outputs, rows, self._state)
        if cut is None:
            return parts
        # The loss for the other labels must not change the buffers, so it uses a copy.
        others = rows[cut.partners.to(rows.device, non_blocking=True)]
        as_others = self._objective.loss(outputs, others, without_average(self._state))
        return {
            name: cut.share * value + (1 - cut.share) * as_others[name]
            for name, value in parts.items()
        }

    def _with_boxes(
        self, items: Tensor, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Cut | None]:
        """Draw a box for a batch of `count` images and paste it into this process's images."""
        if not self._training.cutmix:
            return items, None
        shape = torch.Size((count, *items.shape[1:]))
        cut = draw_cut(shape, self._training.cutmix, generator)
        if cut is None:
            return items, None
        partners = self._workers.part(cut.partners).to(items.device, non_blocking=True)
        others = self._workers.gather(items, count)[partners]
        return cut.paste(items, others), cut

    def _augmented(self, items: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Augment this process's images of a batch of `count` as a single process would."""
        kind, workers = self._training.augment, self._workers
        if workers.size == 1 or kind == "none":
            return augment(items, kind, generator)
        # The random numbers of an image depend on its position in the batch.
        batch = items.new_zeros(count, *items.shape[1:])
        workers.part(batch).copy_(items)
        return workers.part(augment(batch, kind, generator))


def make_optimizer(net: HashNetwork, training: Training) -> torch.optim.Optimizer:
    """Return the optimizer, with separate parameter groups for hash layer and backbone."""
    groups = [{"params": list(net.head.parameters())}, {"params": list(net.trunk.parameters())}]
    if training.optimizer == "sgd":
        return torch.optim.SGD(
            groups,
            lr=training.lr,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
        )
    on_gpu = next(net.parameters()).is_cuda
    return torch.optim.AdamW(
        groups, lr=training.lr, weight_decay=training.weight_decay, fused=on_gpu
    )
