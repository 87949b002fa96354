"""The notes' inventory as data: every row once, as printed, with the cell that teaches it."""

import re

import pytest

from kvlib import catalog

NOTEBOOKS = {"A": ("01", "02", "03", "07"), "B": ("08",), "C": ("01", "02", "03", "04")}
LOST = {"A01", "A41", "A42", "A43", "C23", "C50"}

#: id: what the note prints, its unit, and the figure before rounding (several are separated by spaces)
FIGURES = {
    "A01": ("36 / 8 / 128 / 2", "", "36 8 128 2"),
    "A02": ("147,456", "B", "147456"),
    "A03": ("144", "KiB", "144"),
    "A04": ("4.5", "GiB", "4.5"),
    "A05": ("15", "GiB", ""),
    "A06": ("4", "requests", "4"),
    "A07": ("4", "x", "4"),
    "A08": ("64 vs 128", "", "64 128"),
    "A10": ("", "", ""),
    "A11": ("5", "x", "5"),
    "A12": ("2", "x", "2"),
    "A13": ("1/4", "x", "0.25"),
    "A14": ("14", "x", "14.3"),
    "A20": ("0.92", "", "0.92"),
    "A21": ("16", "tokens", "16"),
    "A30": ("121.63", "GiB", ""),
    "A31": ("113.91", "GiB", ""),
    "A32": ("111.9", "GiB", "111.8996"),
    "A33": ("15.27", "GiB", ""),
    "A34": ("1.19", "GiB", ""),
    "A35": ("17.13", "GiB", ""),
    "A36": ("18.29", "GiB", ""),
    "A37": ("93.61", "GiB", "93.6096"),
    "A38": ("3.02", "GiB", "3.02"),
    "A39": ("681,600", "tokens", "681600"),
    "A40": ("16.64", "x", "16.640625"),
    "A41": ("", "", ""),
    "A42": ("", "x", "83.203125"),
    "A43": ("", "tokens", "1363216"),
    "A44": ("72 / 36", "KiB", "72 36"),
    "A45": ("69", "KiB", "68.625"),
    "A46": ("8", "x", "8.192"),
    "A47": ("2.4", "GiB", "2.4"),
    "A48": ("17,000", "tokens", "17476"),
    "A49": ("2", "GiB", "2.01"),
    "A50": ("", "GiB", "103.3855"),
    "A51": ("", "", ""),
    "B01": ("52.89", "GiB", ""),
    "B02": ("3,208,045", "tokens", "3208045"),
    "B03": ("24.29", "x", "24.2857142857"),
    "B04": ("", "", ""),
    "B05": ("2048", "values", "2048"),
    "B06": ("32", "KiB", "32"),
    "B07": ("3", "MiB", "3"),
    "B08": ("60", "KiB", "60"),
    "B09": ("147", "MiB", "146.8125"),
    "B10": ("4,700", "tokens", "4698"),
    "B11": ("73 MiB / 16 KiB", "", "73.40625 16"),
    "B20": ("1,603,584", "B", "1603584"),
    "B21": ("1,024", "B", "1024"),
    "B22": ("1,605,632", "B", "1605632"),
    "B23": ("1568", "tokens", "1568"),
    "B24": ("0.13", "%", "0.12771"),
    "B25": ("784", "tokens", "784"),
    "B26": ("1600 / 800", "tokens", "1600 800"),
    "B27": ("1568", "tokens", "1568"),
    "B28": ("(1568, 1568, 1568, 1568)", "", "1568 1568 1568 1568"),
    "B29": ("25.7", "MB", "25690112"),
    "B30": ("", "", ""),
    "B31": ("3 / 6", "blocks", "3 6"),
    "B40": ("2,210", "blocks", "2210"),
    "B41": ("85 + 6 = 91", "blocks", "85 6 91"),
    "B42": ("85 + 3 = 88", "blocks", "88"),
    "B50": ("6 + 6 = 12 / 184.17 / 1,508,693", "", "12 184.1666667 1508693"),
    "B51": ("21 + 6 = 27 / 81.85 / 2,682,121", "", "27 81.8518519 2682121"),
    "B52": ("85 + 6 = 91 / 24.29 / 3,208,045", "", "91 24.2857143 3208045"),
    "B53": ("168 + 6 = 174 / 12.70 / 3,329,530", "", "174 12.7011494 3329530"),
    "B54": ("9,408", "tokens", "9408"),
    "B55": ("3,465,280", "tokens", "3465280"),
    "B56": ("", "", ""),
    "C01": ("22.1", "GiB", "22.08"),
    "C02": ("8", "%", "8"),
    "C03": ("0.45", "", ""),
    "C10": ("", "", ""),
    "C11": ("0.36", "GiB", "0.36"),
    "C12": ("18.4", "GiB", "18.38"),
    "C20": ("65,536", "B", "65536"),
    "C21": ("2,097,152", "B", "2097152"),
    "C22": ("131,072 = 128 KiB", "B", "131072"),
    "C23": ("", "", ""),
    "C30": ("16.00", "GiB", "16"),
    "C31": ("6.31 GiB / 51440", "", "6.28 51440"),
    "C32": ("51440", "tokens", "51440"),
    "C33": ("688,304 / 21.01", "tokens / x", "688304 21.0053711"),
    "C34": ("340", "requests", "344"),
    "C35": ("", "", ""),
    "C40": ("", "", ""),
    "C41": ("", "", ""),
    "C50": ("", "", ""),
    "C60": ("28.0 KiB, 18.4 GiB, 688304, 21.0x at 32768", "", "688304 21.0053711"),
    "C61": ("28.0 KiB, 8.3 GiB, 310816, 9.5x", "", "310816 9.4853516"),
    "C62": ("14.0 KiB, 18.4 GiB, 1376624, 42.0x", "", "1376624 42.0112305"),
    "C63": ("128.0 KiB, 6.3 GiB, 51440, 0.4x at 131072", "", "51440 0.3924561"),
    "C64": ("128.0 KiB, 57.8 GiB, 473488, 3.6x", "", "473488 3.6124268"),
    "C65": ("160.0 KiB, 7.1 GiB, 46192, 0.4x", "", "46192 0.3524170"),
    "C66": ("80.0 KiB, 39.9 GiB, 523296, 4.0x", "", "523296 3.9924316"),
    "C67": ("2", "rows", "2"),
    "C70": ("", "tokens", "6430"),
    "C71": ("", "", ""),
}


def note_row(row_id: str) -> dict[str, str]:
    """The row of that id, as text by column."""
    return catalog.note_row(row_id)


def test_every_row_is_there_once():
    ids = [row["id"] for row in catalog.note_rows()]
    assert sorted(ids) == sorted(FIGURES) and len(ids) == 99
    per_note = {note: len(catalog.note_rows(note)) for note in {row["note"] for row in catalog.note_rows()}}
    assert per_note == {"qwen3-8b-gb10": 37, "qwen3.8-27b-hybrid": 33, "llama-tp-sweep": 29}


@pytest.mark.parametrize("row_id", FIGURES)
def test_a_row_has_its_figures(row_id):
    row = note_row(row_id)
    assert (row["printed"], row["unit"], row["exact"]) == FIGURES[row_id]
    assert row["what"] and row["where"] and row["kind"]
    assert row["lost"] == ("yes" if row_id in LOST else "no")


@pytest.mark.parametrize("row_id", FIGURES)
def test_a_row_has_a_notebook_and_a_cell(row_id):
    row = note_row(row_id)
    assert re.fullmatch(r"[abc]\d\d-[a-z0-9-]{2,40}", row["cell"])
    assert row["notebook"][:2] in NOTEBOOKS[row_id[0]] and row["notebook"].endswith(".ipynb")


def test_a_cell_is_in_one_notebook():
    home = {}
    for row in catalog.note_rows():
        assert home.setdefault(row["cell"], row["notebook"]) == row["notebook"]


def test_an_unknown_id_is_a_key_error():
    with pytest.raises(KeyError):
        catalog.note_row("Z99")
