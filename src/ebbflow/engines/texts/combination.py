"""Vectors as scalar multiples of named vectors, for hooks that are linear in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_DUST = 1e-12  # of the summands' size: what is left of a multiple that cancels


class NotLinearError(TypeError):
    """A hook asked a `Combination` for something that is not linear algebra."""


class Combination:
    """A vector as scalar multiples of named vectors: {name: (multiple, size of its summands)}.

    A multiple that is left over where summands cancel (SCAFFOLD's c in c_k+) is rounding dust: it
    is told by its size beside theirs and dropped by `multiples`.

    >>> like = torch.zeros((), dtype=torch.float64)
    >>> c, y = Combination.of("c", like), Combination.of("y", like)
    >>> (0.1 * (3 * c + y) - 0.3 * c).multiples()
    {'y': 0.1}
    """

    __slots__ = ("_like", "_parts")
    __hash__ = None  # type: ignore[assignment]  # Python's way to have none

    def __init__(self, parts: Mapping[str, tuple[float, float]], like: Tensor) -> None:
        self._parts = dict(parts)
        self._like = like

    @classmethod
    def of(cls, name: str, like: Tensor) -> Combination:
        """Return one named vector; new tensors that a hook asks for are of the type of ``like``."""
        return cls({name: (1.0, 1.0)}, like)

    def multiples(self) -> dict[str, float]:
        """Return what each vector counts, without dust (but with what is not a number)."""
        parts = self._parts.items()
        return {name: v for name, (v, size) in parts if not abs(v) <= _DUST * size}

    # --- what hooks may do ----------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """The type of the vector's numbers."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """Where the vector would lie."""
        return self._like.device

    def new_zeros(self, *shape: Any, **options: Any) -> Tensor:
        """Return a tensor, not a vector like this one."""
        return self._like.new_zeros(*shape, **options)

    def new_tensor(self, data: Any) -> Tensor:
        """Return a tensor, not a vector like this one."""
        return self._like.new_tensor(data)

    def clone(self) -> Combination:
        """Return a vector of its own."""
        return Combination(self._parts, self._like)

    detach = clone

    def add(self, other: Any, *, alpha: Any = 1) -> Combination:
        """Return self + alpha other."""
        if isinstance(other, Combination):
            by, parts = _number(alpha), dict(self._parts)
            for name, (value, size) in other._parts.items():
                had, of = parts.get(name, (0.0, 0.0))
                parts[name] = (had + by * value, of + abs(by) * size)
            return Combination(parts, self._like)
        if _number(other) == 0:
            return self.clone()
        raise NotLinearError("a number is added to every entry of a vector")

    def sub(self, other: Any, *, alpha: Any = 1) -> Combination:
        """Return self - alpha other."""
        return self.add(other, alpha=-_number(alpha))

    def mul(self, other: Any) -> Combination:
        """Return a multiple of the vector."""
        by = _number(other)
        parts = {name: (by * v, abs(by) * size) for name, (v, size) in self._parts.items()}
        return Combination(parts, self._like)

    def div(self, other: Any) -> Combination:
        """Return the vector divided by a number."""
        by = _number(other)
        parts = {name: (v / by, size / abs(by)) for name, (v, size) in self._parts.items()}
        return Combination(parts, self._like)

    def _become(self, other: Combination) -> Combination:
        self._parts = other._parts
        return self

    def add_(self, other: Any, *, alpha: Any = 1) -> Combination:
        """Add in place."""
        return self._become(self.add(other, alpha=alpha))

    def sub_(self, other: Any, *, alpha: Any = 1) -> Combination:
        """Subtract in place."""
        return self._become(self.sub(other, alpha=alpha))

    def mul_(self, other: Any) -> Combination:
        """Multiply in place."""
        return self._become(self.mul(other))

    def div_(self, other: Any) -> Combination:
        """Divide in place."""
        return self._become(self.div(other))

    def __neg__(self) -> Combination:
        return self.mul(-1)

    __add__ = __radd__ = add
    __sub__ = sub
    __mul__ = __rmul__ = mul
    __truediv__ = div

    def __rsub__(self, other: Any) -> Combination:
        return self.mul(-1).add(other)

    def __eq__(self, other: object) -> bool:
        raise NotLinearError("vectors are compared")

    def __bool__(self) -> bool:
        raise NotLinearError("a vector is asked whether it is true")

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "").strip("_")
        if name not in _LINEAR:
            raise NotLinearError(f"{name} is no linear algebra")
        return _LINEAR[name](*args, **(kwargs or {}))


def _number(value: Any) -> float:
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    raise NotLinearError(f"a vector meets a {type(value).__name__} that is no number")


def _sum(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if isinstance(a, Combination):
        return a.add(b, alpha=alpha)
    return b.mul(_number(alpha)).add(a)


def _divided(a: Any, b: Any) -> Combination:
    if not isinstance(a, Combination):
        raise NotLinearError("a number is divided by a vector")
    return a.div(b)


def _multiplied(a: Any, b: Any) -> Combination:
    found: Combination = a.mul(b) if isinstance(a, Combination) else b.mul(a)
    return found


def _less(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return _sum(a, b, alpha=-_number(alpha))


_LINEAR: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "radd"), _sum),
    **dict.fromkeys(("sub", "subtract"), _less),
    **dict.fromkeys(("mul", "multiply", "rmul"), _multiplied),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv"), _divided),
    **dict.fromkeys(("neg", "negative"), Combination.__neg__),
    "rsub": lambda a, b: _less(b, a),
    "clone": Combination.clone,
    "zeros_like": lambda a: a.mul(0),
}


def combined(value: object) -> Combination | None:
    """Return a value as the combination that it is, or None: hooks take it for a tensor."""
    return value if isinstance(value, Combination) else None


def multiples_of(value: object) -> dict[str, float]:
    """Return what each named vector counts in what a hook returned."""
    found = combined(value)
    if found is None:
        raise NotLinearError(f"a hook returned a {type(value).__name__} for a vector")
    return found.multiples()
