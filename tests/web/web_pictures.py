"""Picture files made in memory."""

import io

from PIL import Image


def as_file(pixels, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()
