"""A GGUF file that lies in parts, one per package: its settings, and its tensors one at a time.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, version 3. Values are dequantised by the `gguf`
package. Its own reader is not used: it wants one file, and takes 12 s for the vocabulary of a Qwen2.5.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_audit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import torch

__all__ = ["GgufFile", "StoredTensor"]

HEAD_BYTES = 1 << 25
"""Settings, vocabulary and the table of tensors fit in it: they are 6 MB of a Qwen2.5."""

ROWS = 256
"""Dequantised at a time: what comes between fits in the processor's cache, and is not asked of the system each time."""

_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Types of a value, by their number in the format."""

Value = int | float | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies, and how it is stored."""

    kind: int
    """Of `gguf.GGMLQuantizationType`."""

    shape: tuple[int, ...]
    """Rows first, as torch has it."""

    start: int
    """First byte, counted over all parts."""

    size_bytes: int
    sha256: str = ""
    """Of its bytes; they are checked against it where it is known."""


class GgufFile:
    """Reads from the parts of a file.

    Args:
        parts: In their order.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        self.parts = parts
        self._ends = list(accumulate(part.stat().st_size for part in parts))

    def head(self) -> tuple[dict[str, Value], dict[str, StoredTensor], int]:
        """Return the settings, where each tensor lies, and how many bytes come before the first one.

        Of a list among the settings, such as the vocabulary, its length is returned.

        Raises:
            ModelError: no GGUF of version 3, or a damaged one.
        """
        from gguf import GGMLQuantizationType, quant_shape_to_byte_shape  # noqa: PLC0415 - of the models' libraries

        head = _Head(self.read(0, min(HEAD_BYTES, self._ends[-1])))
        try:
            magic, version, tensors, settings = head.take("<4sIQQ")
            if (magic, version) != (b"GGUF", 3):
                raise ModelError(f"{self.parts[0]}: is no GGUF file of version 3")
            found = {head.text(): head.value() for _ in range(settings)}
            stored = {}
            for _ in range(tensors):
                name, (dimensions,) = head.text(), head.take("<I")
                shape = head.take(f"<{dimensions}Q")[::-1]
                kind, offset = head.take("<IQ")
                size = prod(quant_shape_to_byte_shape(shape, GGMLQuantizationType(kind)))
                stored[name] = StoredTensor(kind=kind, shape=shape, start=offset, size_bytes=size)
            step = int(found.get("general.alignment", 32))
            first = -(-head.place // step) * step
        except (struct.error, KeyError, OverflowError, ValueError) as error:
            raise ModelError(f"{self.parts[0]}: damaged head of a GGUF file ({error!s:.120})") from None
        return found, {name: replace(tensor, start=first + tensor.start) for name, tensor in stored.items()}, first

    def bf16(self, tensor: StoredTensor) -> torch.Tensor:
        """Return what a tensor holds, rounded to bf16.

        Raises:
            ModelError: its bytes are not those that were recorded.
        """
        import torch  # noqa: PLC0415 - heavy, and loaded by whoever reads weights
        from gguf import GGMLQuantizationType, dequantize  # noqa: PLC0415 - as above

        data = self.read(tensor.start, tensor.size_bytes)
        if tensor.sha256 and hashlib.sha256(data).hexdigest() != tensor.sha256:
            raise ModelError(f"{self.parts[0]}: weights have changed since they were checked; reinstall the package")
        rows = np.frombuffer(data, np.uint8).reshape(prod(tensor.shape[:-1]), -1)
        found = torch.empty((len(rows), tensor.shape[-1]), dtype=torch.bfloat16)
        for start in range(0, len(rows), ROWS):
            block = dequantize(rows[start : start + ROWS], GGMLQuantizationType(tensor.kind))
            found[start : start + ROWS] = torch.tensor(block)
        return found.reshape(tensor.shape)

    def read(self, start: int, size: int) -> bytes:
        """Return bytes counted over all parts; fewer where the last part ends."""
        found = []
        for part, end in zip(self.parts, self._ends, strict=True):
            if size and start < end:
                with part.open("rb") as file:
                    file.seek(start - end, 2)
                    found.append(file.read(min(size, end - start)))
                start, size = start + len(found[-1]), size - len(found[-1])
        return b"".join(found)


class _Head:
    """Takes values from bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def take(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(form, self._data, self.place)
        self.place += struct.calcsize(form)
        return found

    def text(self) -> str:
        (size,) = self.take("<Q")
        (text,) = self.take(f"{size}s")
        return str(text, "utf-8")

    def value(self) -> Value:
        (kind,) = self.take("<I")
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            number: Value = self.take(_NUMBERS[kind])[0]
            return number
        (kind,) = self.take("<I")
        count = int(*self.take("<Q"))
        if kind != _STRING:
            self.place += count * struct.calcsize(_NUMBERS[kind])
            return count
        for _ in range(count):
            (size,) = self.take("<Q")
            self.place += size
        return count
