"""The table of element types agrees with numpy, with C, and with itself."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import ALIASES, DTYPES, Dtype, dtype

C_BYTES = {
    "bool": 1,
    "signed char": 1,
    "unsigned char": 1,
    "short": 2,
    "unsigned short": 2,
    "int": 4,
    "unsigned int": 4,
    "float": 4,
    "double": 8,
    "long long": 8,
    "unsigned long long": 8,
    "float2": 8,
    "double2": 16,
}


@pytest.mark.parametrize("entry", DTYPES.values(), ids=str)
def test_an_entry_is_as_wide_as_numpy_and_c_say(entry: Dtype) -> None:
    assert dtype(entry.name) is entry is dtype(entry)
    assert str(entry) == entry.name
    assert eval(repr(entry)) == entry == pickle.loads(pickle.dumps(entry))
    if entry.numpy is not None:
        assert np.dtype(entry.numpy).itemsize * 8 == entry.bits
        assert dtype(np.dtype(entry.numpy)) is dtype(np.dtype(entry.numpy).type) is entry
    if entry.bits % 8:
        assert entry.carrier == ""
        for attribute in ("bytes", "c_type"):
            with pytest.raises(RangeError, match=f"{entry.bits} bits wide"):
                getattr(entry, attribute)
    else:
        assert C_BYTES[entry.c_type] == entry.bytes == entry.bits // 8
        assert entry.carrier == entry.c_type


def test_every_alias_names_an_entry_and_hides_none() -> None:
    assert set(ALIASES.values()) <= set(DTYPES)
    assert not set(ALIASES) & set(DTYPES)
    for alias, bits in {
        "f16": 16,
        "bf16": 16,
        "f32": 32,
        "f64": 64,
        "u8": 8,
        "i32": 32,
        "c64": 64,
        "c128": 128,
    }.items():
        assert dtype(alias).bits == bits


class Torch:
    def __str__(self) -> str:
        return "torch.bfloat16"


def test_a_framework_object_is_known_by_the_name_it_prints() -> None:
    assert dtype(Torch()).name == "bfloat16"


@pytest.mark.parametrize("name", ["float", "i4", "f4", "", "float128", 7, None, float])
def test_a_name_that_is_unknown_or_means_two_things_is_refused(name: Any) -> None:
    with pytest.raises(RangeError, match="unknown dtype"):
        dtype(name)
