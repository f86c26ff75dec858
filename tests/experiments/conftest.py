import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def save_scenes(tmp_path):
    """Write pictures to a folder, and a CSV with the split and the labels of each."""

    def save(scenes):
        folder = tmp_path / "scenes"
        folder.mkdir()
        lines = ["file,split,labels"]
        for number, (pixels, part, labels) in enumerate(scenes):
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:02}.png")
            lines.append(f"{number:02}.png,{part},{'|'.join(labels)}")
        (folder / "labels.csv").write_text("\n".join(lines))
        return folder

    return save
