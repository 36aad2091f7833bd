"""Linear combinations of named vectors, as stand-ins for the vectors in hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Never

import torch
from torch import Tensor

from ebbflow.engines.texts.stand_ins import StandInError, refusal

_ROUNDING = 1e-12  # of the summands' size: what rounding leaves of a multiple that cancels


class NotLinearError(StandInError):
    """A hook asked a `Combination` for something that is not linear algebra."""

    verdict = "is not linear"


def _refusal(reason: str) -> Callable[..., Any]:
    return refusal(NotLinearError, reason)


class Combination:
    """A linear combination of named vectors: {name: (multiple, size of its summands)}.

    Where summands cancel (SCAFFOLD's c in c_k+), rounding may leave a tiny multiple. `multiples`
    recognises it by the size of the summands and drops it.

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
        """Return one named vector; ``like`` has the type and device of its numbers."""
        return cls({name: (1.0, 1.0)}, like)

    def multiples(self) -> dict[str, float]:
        """Return the multiple of each vector, without those that cancel; NaN is kept."""
        parts = self._parts.items()
        return {name: v for name, (v, size) in parts if not abs(v) <= _ROUNDING * size}

    # --- what hooks may do ----------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """The type of the vector's numbers."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """The device that the vector would be on."""
        return self._like.device

    def new_zeros(self, *shape: Any, **options: Any) -> Tensor:
        """Return a real tensor."""
        return self._like.new_zeros(*shape, **options)

    def new_tensor(self, data: Any) -> Tensor:
        """Return a real tensor."""
        return self._like.new_tensor(data)

    def clone(self) -> Combination:
        """Return a copy."""
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
        if by == 0:  # as tensors do, and nothing of it counts as rounding
            inverse = math.copysign(math.inf, by)
            parts = {name: (v * inverse, 0.0) for name, (v, _) in self._parts.items()}
        else:
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

    # --- what they may not ----------------------------------------------------------------------

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refusal("vectors are compared")
    __bool__ = _refusal("a vector is asked whether it is true")
    __float__ = __int__ = __index__ = __complex__ = _refusal("a vector is read as a number")
    __getitem__ = __setitem__ = __iter__ = __len__ = __contains__ = _refusal(
        "single entries of a vector are asked for"
    )
    __array__ = _refusal("a vector is turned into an array")
    __abs__ = __pow__ = __rpow__ = __mod__ = __rmod__ = _refusal("that is no linear algebra")
    __floordiv__ = __rfloordiv__ = __matmul__ = __rmatmul__ = __abs__
    __rtruediv__ = _refusal("a number is divided by a vector")

    def __getattr__(self, name: str) -> Never:
        raise NotLinearError(f"{name} is no linear algebra")

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
    raise NotLinearError(f"a vector is combined with a {type(value).__name__} that is no number")


def _sum(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if isinstance(a, Combination):
        return a.add(b, alpha=alpha)
    return b.mul(_number(alpha)).add(a)


def _divided(a: Any, b: Any) -> Combination:
    if not isinstance(a, Combination):
        raise NotLinearError("a number is divided by a vector")
    return a.div(b)


def _multiplied(a: Any, b: Any) -> Combination:
    product: Combination = a.mul(b) if isinstance(a, Combination) else b.mul(a)
    return product


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
    """Return the value if it is a combination; hooks declare it as a tensor."""
    return value if isinstance(value, Combination) else None


def multiples_of(value: object) -> dict[str, float]:
    """Return the multiples of the named vectors in what a hook returned."""
    combination = combined(value)
    if combination is None:
        raise NotLinearError(f"a hook returned a {type(value).__name__} for a vector")
    return combination.multiples()
