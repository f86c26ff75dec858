"""Step: what happens to one batch in training."""

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
    """Change a batch at random, put it through the network, follow the gradient of its loss.

    Parameters
    ----------
    net : HashNetwork
        On the training device.
    objective : Objective
        What its outputs should be.
    state : State
        What the objective keeps.
    training : Training
        How the gradient is followed.
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
        self._captured = Captured(net, training.batch_size) if net.trunk.optimized else net
        if training.average:
            start_average(net, state)

    def begin_epoch(self) -> None:
        """Put the network into the mode in which it is trained."""
        self._net.train()
        if self._training.freeze_norms:
            for layer in self._net.modules():
                if isinstance(layer, BATCH_NORMS):
                    layer.eval()

    def __call__(
        self, rows: Tensor, items: Tensor, steps: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Train on one batch; return the parts of its loss.

        Parameters
        ----------
        rows : Tensor of int64, shape (n,)
            Which training images it has.
        items : Tensor
            Those of them that are this process's part.
        steps : int
            Steps done before this one.
        generator : torch.Generator
            Draws the changes.
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
        """Give the network the averaged weights, where there are some."""
        if self._training.average:
            finish_average(self._net, self._state)

    def set_rate(self, epoch: int, progress: float) -> None:
        """Set the learning rates, see `Training.rate`."""
        head, trunk = self.optimizer.param_groups
        head["lr"] = self._training.rate(epoch, progress)
        trunk["lr"] = self._training.trunk_rate(epoch, progress)

    def _outputs(self, items: Tensor, count: int) -> Tensor:
        if self._workers.size == 1:
            return self._captured(items)
        return self._workers.forward(self._net, items, count)

    def _loss(self, outputs: Tensor, rows: Tensor, cut: Cut | None) -> dict[str, Tensor]:
        """Parts of the loss; of images with a box, the mean for what they are and what it is."""
        parts = self._objective.loss(outputs, rows, self._state)
        if cut is None:
            return parts
        # What the outputs are to the others' labels leaves no trace in the buffers.
        others = rows[cut.partners.to(rows.device, non_blocking=True)]
        as_others = self._objective.loss(outputs, others, without_average(self._state))
        return {
            name: cut.share * value + (1 - cut.share) * as_others[name]
            for name, value in parts.items()
        }

    def _with_boxes(
        self, items: Tensor, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Cut | None]:
        """Draw a box for a batch of `count`, and paste it into this process's images."""
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
        """Change this process's images of a batch of `count` as one process would change them."""
        kind, workers = self._training.augment, self._workers
        if workers.size == 1 or kind == "none":
            return augment(items, kind, generator)
        # What is drawn for an image depends on its place in the batch.
        batch = items.new_zeros(count, *items.shape[1:])
        workers.part(batch).copy_(items)
        return workers.part(augment(batch, kind, generator))


def make_optimizer(net: HashNetwork, training: Training) -> torch.optim.Optimizer:
    """Return the optimiser of a plan: hash layer and trunk are groups with rates of their own."""
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
