"""`bitprint methods`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bitprint.cli._shared import JsonOption, output


def methods(as_json: JsonOption = False) -> None:
    """List the methods, what each needs, and MAP on CIFAR-10: the paper's and ours."""
    from bitprint.experiments.measured import measured_map
    from bitprint.experiments.published import BITS, published_map
    from bitprint.methods import DeepHasher, list_methods, method

    rows = []
    table = Table("method", "learns from", "needs", "paper", "ours", "with", "reference")
    table.title = f"MAP on CIFAR-10, setting 1, {', '.join(map(str, BITS[1]))} bits"
    for name in list_methods():
        cls = method(name)
        learns_from = "images" if issubclass(cls, DeepHasher) else "features"
        theirs = [published_map("cifar10", 1, name, bits) for bits in BITS[1]]
        found = [measured_map("cifar10", 1, name, bits) for bits in BITS[1]]
        ours = [each and each.map for each in found]
        backbone = next((each.backbone for each in found if each), None)
        rows.append(
            {
                "name": name,
                "learns_from": learns_from,
                "supervision": cls.supervision,
                "reference": cls.reference,
                "paper_map_cifar10": dict(zip(BITS[1], theirs, strict=True)),
                "our_map_cifar10": dict(zip(BITS[1], ours, strict=True)),
                "our_backbone": backbone,
            }
        )
        figures = _spell(theirs), _spell(ours), backbone or "-"
        table.add_row(name, learns_from, cls.supervision, *figures, cls.reference)
    if as_json:
        output.print_json(data=rows)
        return
    output.print(table)


def _spell(figures: Sequence[float | None]) -> str:
    return " ".join("-" if value is None else f"{value:.3f}".lstrip("0") for value in figures)
