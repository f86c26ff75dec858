"""Export to ONNX: codes from onnxruntime equal those of Bitprint."""

import json
import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from typer.testing import CliRunner

import bitprint as bp
from bitprint.data import decode_image, draw_shapes
from bitprint.export import export_onnx
from bitprint.photos.encoder import Encoder, Features

onnxruntime = pytest.importorskip("onnxruntime", reason="the export needs onnx")
pytest.importorskip("onnxscript", reason="the export needs onnx")

SCENES = draw_shapes(40, size=40, seed=3)
LABELS = SCENES.labels.argmax(axis=1)


def deep_encoder(method="dsdh", **options):
    training = {"epochs": 1, "batch_size": 20, "lr": 1e-3, "optimizer": "adamw"}
    hasher = bp.create(method, bits=12, backbone="small", **training, **options)
    return Encoder(hasher.fit(SCENES, LABELS))


def run(path, images):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"images": images})[0], session


def assert_same_codes(encoder, path, images):
    outputs, _ = run(path, images)
    ours = encoder.encode_squares(images).signs()
    firm = np.abs(outputs) >= 1e-4
    assert firm.mean() > 0.9
    np.testing.assert_array_equal(np.where(outputs >= 0, 1, -1)[firm], ours[firm])


@pytest.mark.parametrize("method", ["dsdh", "dsdh-b", "dlbhc", "ninh"])
def test_a_deep_model_gives_the_same_codes_for_any_batch(method, tmp_path):
    encoder = deep_encoder(method)
    checked = export_onnx(encoder, tmp_path / "model.onnx")
    assert checked.bits == 16 * 12
    assert checked.different <= checked.near_zero
    for count in (1, 3, 40):
        assert_same_codes(encoder, tmp_path / "model.onnx", SCENES.pixels[:count])


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("bitprint.export.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install onnx onnxscript onnxruntime"):
        export_onnx(deep_encoder(), tmp_path / "model.onnx")


def test_export_prints_no_warnings(tmp_path, monkeypatch):
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    original, loud = torch.onnx.export, []

    def export(*arguments, **options):
        warnings.warn("of the future", FutureWarning, stacklevel=2)
        loud.append(logger.isEnabledFor(logging.WARNING))
        return original(*arguments, **options)

    monkeypatch.setattr(torch.onnx, "export", export)
    level = logger.level
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        export_onnx(deep_encoder(), tmp_path / "model.onnx")
    assert not [entry for entry in heard if entry.category is FutureWarning]
    assert (loud, logger.level) == ([False], level)


def test_averaging_with_mirrored_images_is_exported(tmp_path):
    encoder = deep_encoder(mirror=True)
    export_onnx(encoder, tmp_path / "model.onnx")
    outputs, _ = run(tmp_path / "model.onnx", SCENES.pixels)
    np.testing.assert_allclose(outputs, encoder.hasher.project(SCENES), atol=1e-4)
    mirrored, _ = run(tmp_path / "model.onnx", np.ascontiguousarray(SCENES.pixels[:, :, ::-1]))
    np.testing.assert_allclose(outputs, mirrored, atol=1e-4)


def test_the_graph_resizes_and_normalizes(tmp_path):
    """The input of EfficientNet-Lite0 has 224 pixels; these images have 40."""
    features = Features("efficientnet-lite0", 40)
    encoder = Encoder(bp.create("itq", bits=16).fit(features(SCENES.pixels)), features)
    export_onnx(encoder, tmp_path / "model.onnx", pictures=2)
    outputs, _ = run(tmp_path / "model.onnx", SCENES.pixels[:8])
    expected = encoder.hasher.project(features(SCENES.pixels[:8]))
    np.testing.assert_allclose(outputs, expected, atol=1e-3 * np.abs(expected).max())
    assert_same_codes(encoder, tmp_path / "model.onnx", SCENES.pixels[:8])


def test_a_deep_model_on_features(tmp_path):
    features = Features("small", 40)
    hasher = bp.create("dsdh", bits=12, epochs=2).fit(features(SCENES.pixels), LABELS)
    encoder = Encoder(hasher, features)
    export_onnx(encoder, tmp_path / "model.onnx")
    assert_same_codes(encoder, tmp_path / "model.onnx", SCENES.pixels[:8])


def test_the_metadata_describes_input_and_output(tmp_path):
    encoder = deep_encoder()
    export_onnx(encoder, tmp_path / "model.onnx")
    _, session = run(tmp_path / "model.onnx", SCENES.pixels[:1])
    about = session.get_modelmeta().custom_metadata_map
    assert about["bitprint.bits"] == "12"
    assert about["bitprint.size"] == "40"
    assert about["bitprint.model"] == encoder.identity
    assert "resized to size x size" in about["bitprint.input"]
    assert ">= 0" in about["bitprint.code"]
    assert session.get_inputs()[0].shape[1:] == [40, 40, 3]


def of_palette(scene):
    image = Image.fromarray(scene).quantize(16)
    image.info["transparency"] = image.getpixel((0, 0))
    return image


def of_alpha(scene):
    image = Image.fromarray(scene)
    image.putalpha(Image.fromarray(scene[..., 0]))
    return image


@pytest.mark.parametrize(
    "drawn",
    [
        Image.fromarray,
        lambda scene: Image.fromarray(scene).convert("L"),
        of_palette,
        of_alpha,
        lambda scene: Image.fromarray(scene[..., 0].astype(np.uint16) * 201 + 77),
    ],
    ids=["color", "gray", "palette", "alpha", "16 bit"],
)
def test_the_example_in_the_docs_computes_the_same_code(drawn, tmp_path, monkeypatch):
    page = (Path(__file__).parents[1] / "docs" / "own_photos.md").read_text()
    (lines,) = (block for block in page.split("```") if "InferenceSession" in block)
    encoder = deep_encoder()
    monkeypatch.chdir(tmp_path)
    export_onnx(encoder, "photos.bp.onnx")
    drawn(SCENES.pixels[5]).save("query.jpg", "PNG")
    names = {"Image": Image, "ImageOps": ImageOps, "np": np, "onnxruntime": onnxruntime}
    exec(lines, names)
    picture = decode_image("query.jpg", encoder.size)
    assert np.array_equal(names["pixels"], picture)
    assert names["code"].tobytes() == encoder.encode([picture]).packed[0].tobytes()


def test_models_that_cannot_be_exported_are_refused(tmp_path):
    pixels = Encoder(bp.create("itq", bits=12).fit(SCENES))
    with pytest.raises(
        ValueError, match="uses pixels features, which are not computed by a network"
    ):
        export_onnx(pixels, tmp_path / "model.onnx")
    features = Features("small", 40)
    kernel = bp.create("ksh", bits=12, anchors=10).fit(features(SCENES.pixels), LABELS)
    with pytest.raises(ValueError, match="outputs of ksh are not linear"):
        export_onnx(Encoder(kernel, features), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_codes_that_differ_are_not_written(tmp_path, monkeypatch):
    encoder = deep_encoder()
    with monkeypatch.context() as changed:
        changed.setattr(
            encoder,
            "encode_squares",
            lambda images: bp.Codes.from_signs(-encoder.hasher.encode(bp.ImageSet(images)).signs()),
        )
        with pytest.raises(ValueError, match=r"bits of the exported model\s+differ"):
            export_onnx(encoder, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path):
    from bitprint.cli import app

    encoder = deep_encoder()
    encoder.hasher.save(tmp_path / "run")
    result = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--json"])
    about = json.loads(result.stdout)
    assert about["size"] == 40
    assert (tmp_path / "run.onnx").stat().st_size > 1000
    assert (
        CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--to", "tflite"]).exit_code == 2
    )
