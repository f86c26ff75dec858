import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as deserialise
from safetensors.numpy import save_file

import bitprint as bp
from bitprint.codes import Codes, as_codes, check_bits


@st.composite
def sign_matrices(draw, max_rows=6, max_bits=130):
    rows = draw(st.integers(0, max_rows))
    bits = draw(st.integers(1, max_bits))
    seed = draw(st.integers(0, 2**32 - 1))
    return random_signs(rows, bits, seed)


def random_signs(rows, bits, seed=0):
    return np.random.default_rng(seed).choice([-1, 1], size=(rows, bits))


def pack_by_hand(signs):
    """One byte at a time: the first bit is worth 128, a bit past the end is zero."""
    packed = []
    for row in signs:
        packed.append([])
        for start in range(0, len(row), 8):
            byte = 0
            for place, sign in enumerate(row[start : start + 8]):
                byte += 2 ** (7 - place) * (sign == 1)
            packed[-1].append(byte)
    return packed


@given(sign_matrices())
def test_packing_matches_plain_loops(signs):
    codes = Codes.from_signs(signs)
    assert codes.packed.dtype == np.uint8
    assert codes.packed.shape == (len(signs), -(-signs.shape[1] // 8))
    assert codes.packed.tolist() == pack_by_hand(signs.tolist())
    assert (len(codes), codes.bits) == signs.shape


@pytest.mark.parametrize("bits", range(1, 131))
def test_every_width_packs_and_unpacks(bits):
    signs = random_signs(3, bits, seed=bits)
    codes = Codes.from_signs(signs)
    assert codes.packed.tolist() == pack_by_hand(signs.tolist())
    assert codes.signs().dtype == np.int8
    assert np.array_equal(codes.signs(), signs)
    assert Codes.from_packed(codes.packed, bits) == codes


@given(sign_matrices())
def test_booleans_integers_and_floats_give_the_same_codes(signs):
    codes = Codes.from_signs(signs)
    for same in (signs == 1, signs.astype(np.int8), signs.astype(np.float32)):
        assert Codes.from_signs(same) == codes
    if len(signs):
        assert Codes.from_signs(signs.tolist()) == codes


@given(sign_matrices(max_rows=5), st.data())
def test_hamming_matches_plain_loops(signs, data):
    others = random_signs(data.draw(st.integers(0, 5)), signs.shape[1], seed=1)
    expected = [[sum(a != b for a, b in zip(x, y, strict=True)) for y in others] for x in signs]
    distances = Codes.from_signs(signs).hamming(Codes.from_signs(others))
    assert distances.shape == (len(signs), len(others))
    assert distances.tolist() == expected


def test_hamming_of_all_twelve_bits():
    """Twelve bits fill a byte and a half: opposite codes differ in 12 places, not in 16."""
    codes = Codes.from_signs(np.stack([np.ones(12), -np.ones(12)]))
    assert codes.packed.tolist() == [[0xFF, 0xF0], [0, 0]]
    assert codes.hamming(codes).tolist() == [[0, 12], [12, 0]]


def test_hamming_counts_past_a_byte():
    codes = Codes.from_signs(np.stack([np.ones(600), -np.ones(600)]))
    assert codes.hamming(codes).tolist() == [[0, 600], [600, 0]]


@pytest.mark.parametrize(
    "rows",
    [slice(2, 5), slice(None, None, -2), [4, 0, 4], [], np.array([1, -1]), np.arange(7) % 2 == 0],
)
def test_selection_is_that_of_the_rows(rows):
    signs = random_signs(7, 12)
    part = Codes.from_signs(signs)[rows]
    assert isinstance(part, Codes)
    assert part.bits == 12
    assert np.array_equal(part.signs(), signs[rows])


@pytest.mark.parametrize("row", [0, 6, -1, np.int64(3)])
def test_one_number_selects_one_code(row):
    signs = random_signs(7, 12)
    assert Codes.from_signs(signs)[row].signs().tolist() == [signs[row].tolist()]


def test_iteration_gives_each_code_once():
    codes = Codes.from_signs(random_signs(5, 9))
    assert Codes.concatenate(codes) == codes
    with pytest.raises(IndexError):
        codes[5]


@given(sign_matrices(), st.data())
def test_concatenate_undoes_a_cut(signs, data):
    codes = Codes.from_signs(signs)
    cut = data.draw(st.integers(0, len(codes)))
    assert Codes.concatenate([codes[:cut], codes[cut:]]) == codes
    assert Codes.concatenate(part for part in [codes]) == codes


def test_equality_sees_bits_and_values():
    codes = Codes.from_signs([[1, -1, 1]])
    assert codes == Codes.from_signs([[1, -1, 1]])
    assert codes != Codes.from_signs([[1, -1, -1]])
    assert codes != Codes.from_signs([[1, -1, 1, -1]])  # the same byte, but another length
    assert codes != Codes.from_signs([[1, -1, 1], [1, -1, 1]])
    assert codes != codes.packed.tolist()
    with pytest.raises(TypeError):
        hash(codes)


def test_repr_says_what_it_holds():
    assert repr(bp.Codes.from_signs(np.ones((7, 12)))) == "Codes(7 x 12 bits)"


@pytest.mark.parametrize("bits", [True, False, 0, -8, 8.0, "8", None, np.bool_(True)])
def test_bits_are_a_whole_number_of_at_least_one(bits):
    with pytest.raises(ValueError, match="bits must be an integer >= 1, got"):
        Codes.from_packed(np.zeros((2, 1), np.uint8), bits)
    with pytest.raises(ValueError, match="bits must be an integer"):
        check_bits(bits)


def test_bits_may_be_a_numpy_integer():
    bits = Codes.from_packed(np.zeros((2, 2), np.uint8), np.int64(12)).bits
    assert type(bits) is int


@pytest.mark.parametrize(
    "packed",
    [
        np.zeros((2, 1), np.uint8),
        np.zeros((2, 3), np.uint8),
        np.zeros(2, np.uint8),
        np.zeros((2, 2, 1), np.uint8),
        np.zeros((2, 2), np.int8),
        np.zeros((2, 2), np.int64),
        np.zeros((2, 2), bool),
    ],
)
def test_packed_codes_have_one_form(packed):
    with pytest.raises(
        ValueError, match=r"packed codes of 12 bits must be uint8 of shape \(N, 2\), got"
    ):
        Codes.from_packed(packed, bits=12)


@pytest.mark.parametrize("bits", range(1, 17))
def test_padding_bits_must_be_zero(bits):
    width = -(-bits // 8)
    for place in range(width * 8):
        packed = np.zeros((2, width), np.uint8)
        packed[1, place // 8] = 0x80 >> place % 8
        if place < bits:
            assert Codes.from_packed(packed, bits).signs()[1].tolist().index(1) == place
        else:
            with pytest.raises(ValueError, match=r"padding bits of \d+-bit codes must be zero"):
                Codes.from_packed(packed, bits)


@pytest.mark.parametrize(
    "values", [[[0, 1]], [[1, 2]], [[-1, 0.5]], [[1, np.nan]], [["1", "-1"]], [[255, 1]]]
)
def test_other_values_than_signs_are_refused(values):
    with pytest.raises(ValueError, match="signs must be -1 and \\+1"):
        Codes.from_signs(values)


@pytest.mark.parametrize(
    "values", [np.array([[0, 1], [1, 1]]), np.array([[1.0, 0.0]]), np.sign([[-0.5, 0.0, 2.0]])]
)
def test_zeros_among_the_signs_are_told_what_to_do(values):
    with pytest.raises(ValueError, match="for 0 and 1 pass `codes > 0`"):
        Codes.from_signs(values)
    assert np.array_equal(Codes.from_signs(values > 0).signs(), np.where(values > 0, 1, -1))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 0), (0,)])
def test_signs_have_two_dimensions(shape):
    with pytest.raises(ValueError, match=r"signs must have shape \(N, K\) with K >= 1"):
        Codes.from_signs(np.ones(shape))


def test_codes_of_different_lengths_do_not_mix():
    short, long = Codes.from_signs(np.ones((2, 9))), Codes.from_signs(np.ones((2, 10)))
    for mix in (lambda: short.hamming(long), lambda: Codes.concatenate([short, short, long])):
        with pytest.raises(
            ValueError, match="cannot compare codes of 9 bits with codes of 10 bits"
        ):
            mix()
    with pytest.raises(ValueError, match="nothing to concatenate"):
        Codes.concatenate([])


# Files


@pytest.fixture
def saved(tmp_path):
    codes = Codes.from_signs(random_signs(5, 12))
    codes.save(tmp_path / "codes")
    return codes, tmp_path / "codes"


@pytest.mark.parametrize(("rows", "bits"), [(0, 1), (0, 12), (1, 1), (5, 12), (100, 64), (3, 130)])
def test_save_and_load(tmp_path, rows, bits):
    codes = Codes.from_signs(random_signs(rows, bits))
    codes.save(str(tmp_path / "some.codes"))
    assert Codes.load(tmp_path / "some.codes") == codes
    assert [file.name for file in tmp_path.iterdir()] == ["some.codes"]


def test_a_selection_is_saved_as_it_is(tmp_path):
    codes = Codes.from_signs(random_signs(9, 20))
    codes[::-2].save(tmp_path / "codes")
    assert Codes.load(tmp_path / "codes") == codes[[8, 6, 4, 2, 0]]


def test_saving_replaces_and_a_failed_save_keeps_the_old_file(saved, tmp_path):
    codes, path = saved
    codes[:2].save(path)
    assert Codes.load(path) == codes[:2]
    (tmp_path / "codes.partial").mkdir()  # the write fails
    with pytest.raises(OSError, match=r"codes\.partial"):
        codes.save(path)
    assert Codes.load(path) == codes[:2]


def test_saved_codes_are_synced_with_their_folder(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    folder = tmp_path.resolve() / "new"
    Codes.from_signs(random_signs(5, 9)).save(folder / "codes")
    assert synced == [str(tmp_path.resolve()), str(folder / "codes.partial"), str(folder)]


def test_every_truncation_is_refused(saved):
    _, path = saved
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="not a codes file, or truncated"):
            Codes.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="not a codes file, or truncated"):
        Codes.load(path)


def test_every_flipped_bit_of_the_payload_is_refused(saved):
    _, path = saved
    content = path.read_bytes()
    payload = 8 + int.from_bytes(content[:8], "little")
    assert len(content) - payload == 10
    for place in range(payload, len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match="the checksum does not match"):
                Codes.load(path)


@pytest.mark.parametrize("flips", [[0x01, 0x02, 0x04], [0x08, 0x10, 0x20], [0x40, 0x80, 0xFF]])
def test_no_damaged_byte_gives_other_codes(saved, flips):
    """Wherever one byte of the file is wrong: an error, or the codes that were saved."""
    codes, path = saved
    content = path.read_bytes()
    for place in range(len(content)):
        for flip in flips:
            damaged = bytearray(content)
            damaged[place] ^= flip
            path.write_bytes(damaged)
            try:
                loaded = Codes.load(path)
            except (ValueError, OSError):
                continue
            assert loaded == codes, f"byte {place}: {content[place]:#x} read as {damaged[place]:#x}"


def metadata_of(path):
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


def test_another_version_is_refused(saved):
    _, path = saved
    packed = deserialise(path.read_bytes())
    save_file(packed, path, metadata_of(path) | {"version": "2"})
    with pytest.raises(
        ValueError,
        match="unknown format version 2, this Bitprint reads version 1; upgrade bitprint",
    ):
        Codes.load(path)


@pytest.mark.parametrize(
    "bits", [None, "", "twelve", "-12", "0", "1.5", "8", "10", "13", "16", "20"]
)
def test_another_number_of_bits_is_refused(tmp_path, bits):
    """Nine to sixteen bits fill two bytes: shape and payload do not tell them apart."""
    path = tmp_path / "codes"
    Codes.from_signs(random_signs(5, 9)).save(path)
    metadata = metadata_of(path) | {"bits": bits}
    packed = deserialise(path.read_bytes())
    save_file(packed, path, {name: text for name, text in metadata.items() if text is not None})
    with pytest.raises(ValueError, match=re.escape(str(path))):
        Codes.load(path)


def test_foreign_files_are_refused(saved, tmp_path):
    _, path = saved
    tensors = deserialise(path.read_bytes())
    for metadata in (None, {}, {"format": "pt"}, metadata_of(path) | {"format": "bitprint.model"}):
        save_file(tensors, path, metadata)
        with pytest.raises(ValueError, match="codes: not a codes file"):
            Codes.load(path)
    save_file(tensors, path, {"format": "bitprint.codes", "version": "1", "bits": "12"})
    with pytest.raises(ValueError, match="the checksum does not match"):
        Codes.load(path)
    np.save(tmp_path / "array.npy", np.zeros((5, 2), np.uint8))
    (tmp_path / "text").write_text("codes\n" * 100)
    for name in ("array.npy", "text"):
        with pytest.raises(ValueError, match=f"{name}: not a codes file"):
            Codes.load(tmp_path / name)


def test_a_file_with_other_tensors_is_refused(saved):
    _, path = saved
    metadata = metadata_of(path)
    save_file({"weights": np.zeros((5, 2), np.uint8)}, path, metadata)
    with pytest.raises(ValueError, match="codes: not a codes file"):
        Codes.load(path)


def test_a_missing_file_is_named(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"{path.name}: no such codes file"):
            Codes.load(path)


def test_asarray_gives_signs_in_any_dtype():
    codes = Codes.from_signs([[1, -1, 1], [1, 1, 1]])
    signs = np.asarray(codes)
    assert (signs.dtype, signs.tolist()) == (np.int8, [[1, -1, 1], [1, 1, 1]])
    assert np.asarray(codes, np.float32).dtype == np.array(codes, dtype="f4", copy=True).dtype
    assert (codes.shape, codes.ndim, codes.dtype) == (signs.shape, signs.ndim, signs.dtype)
    assert np.concatenate([codes, codes]).shape == (4, 3)
    with pytest.raises(ValueError, match="always makes a copy"):
        np.asarray(codes, copy=False)


def test_codes_compare_and_iterate_as_codes():
    codes = Codes.from_signs([[1, -1, 1], [1, 1, 1]])
    assert (codes == codes[:]) is True
    assert (codes == codes[:1]) is False
    assert [type(code) for code in codes] == [Codes, Codes]


@pytest.mark.parametrize(
    "form",
    [
        lambda signs: signs,
        np.array,
        torch.tensor,
        lambda signs: np.array(signs, np.float64),
        lambda signs: np.array(signs) > 0,
        lambda signs: torch.tensor(signs).bfloat16().requires_grad_(),
        lambda signs: list(torch.tensor(signs)),
        Codes.from_signs,
    ],
)
def test_as_codes_reads_signs_in_any_form(form):
    signs = [[1, -1, 1], [1, 1, 1]]
    assert as_codes(form(signs)) == Codes.from_signs(signs)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0, 1]], r"got 0 and 1: pass Codes.from_signs\(bits.astype\(bool\)\)"),
        ([[0.3, -1.2]], r"real-valued outputs pass Codes.from_signs\(outputs >= 0\)"),
        ([[np.nan, 1]], "got other numbers"),
        (np.array([[160]], np.uint8), r"Codes.from_packed\(packed, bits=K\)"),
        ([1, -1], r"got \(2,\): for one code pass code\[None\]"),
        ([], "shape"),
        ([["a", "b"]], "codes must be numbers"),
    ],
)
def test_as_codes_with_other_values_says_what_to_pass(values, message):
    with pytest.raises(ValueError, match=message) as error:
        as_codes(values)
    assert "\n" not in str(error.value)


def test_from_signs_takes_a_tensor_with_gradients():
    signs = torch.tensor([[1.0, -1.0], [-1.0, -1.0]], requires_grad=True)
    assert Codes.from_signs(signs).signs().tolist() == [[1, -1], [-1, -1]]


def test_from_signs_of_outputs_names_the_comparison():
    with pytest.raises(ValueError, match="for network outputs `outputs >= 0`"):
        Codes.from_signs([[0.3, -0.7]])


def test_codes_by_two_indices_name_signs():
    with pytest.raises(ValueError, match=r"for single bits use codes\.signs\(\)"):
        Codes.from_signs([[1, -1]])[0, 1]


def test_binary_embeddings_have_the_bits_of_the_signs():
    embeddings = np.random.default_rng(0).normal(size=(50, 32))
    # as sentence_transformers.quantize_embeddings computes them
    ubinary = np.packbits(embeddings > 0, axis=1)
    binary = (np.packbits(embeddings > 0, axis=1) - 128).astype(np.int8)
    for packed in (ubinary, binary):
        codes = Codes.from_binary_embeddings(packed)
        assert codes.signs().tolist() == np.where(embeddings > 0, 1, -1).tolist()


@pytest.mark.parametrize(
    "values", [np.ones((2, 4)), np.ones(4, np.uint8), np.ones((2, 0), np.int8), [[1, 2]]]
)
def test_other_arrays_are_not_binary_embeddings(values):
    with pytest.raises(ValueError, match="binary embeddings must be uint8 or int8 of shape"):
        Codes.from_binary_embeddings(values)


@pytest.mark.parametrize("bits", [1, 7, 8, 9, 16, 20])
def test_prefix_keeps_the_first_bits(bits):
    signs = np.where(np.random.default_rng(bits).random((30, 20)) < 0.5, 1, -1)
    codes = Codes.from_signs(signs)
    assert codes.prefix(bits) == Codes.from_signs(signs[:, :bits])
    assert codes == Codes.from_signs(signs)


def test_a_prefix_longer_than_the_codes_is_refused():
    with pytest.raises(ValueError, match="codes of 3 bits have no prefix of 4 bits"):
        Codes.from_signs([[1, -1, 1]]).prefix(4)
