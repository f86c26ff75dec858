import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def save_scenes(tmp_path):
    """Save images in a folder, with a CSV file of their splits and labels."""

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
