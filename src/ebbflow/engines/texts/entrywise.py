"""Finds out whether hooks treat every entry of their vectors by itself.

If they do, then running them on a part of the vectors gives that part of the result, whatever the
numbers are. The hooks are run on `Entrywise` stand-ins, which support only functions of torch that
compute each entry of their result from the same entry of their arguments (a sum, a sign, a clip to
fixed bounds) and refuse everything else: a norm, a largest entry, a sort, a single entry, a branch
on values, the number of entries. A hook that is not refused can therefore not have mixed entries.
No numbers are looked at, so there is nothing to guess.

What a hook does may depend on single numbers: how many steps a device makes, and D_k. A check holds
for those that it was made with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.core.algorithm import Broadcast, LocalRun
from ebbflow.core.local import Lane, Recipe, step_sum
from ebbflow.engines.texts.stand_ins import StandInError, hook_on_stand_ins, refusal

_NAMES = """
abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not
bitwise_or bitwise_xor ceil clamp clamp_max clamp_min clip clone copysign cos cosh detach div divide
double eq erf erfc exp exp2 expm1 float floor floor_divide fmax fmin fmod frac full_like ge greater
greater_equal gt half hardtanh heaviside hypot isfinite isinf isnan le lerp less less_equal log
log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor lt maximum minimum mul
multiply nan_to_num ne neg negative not_equal ones_like positive pow reciprocal relu remainder round
rsqrt sgn sigmoid sign signbit sin sinh softplus sqrt square sub subtract tan tanh true_divide trunc
where xlogy zeros_like
""".split()  # noqa: SIM905 - a list would take a hundred lines
_OPERATORS = """
abs add and eq floordiv ge gt invert le lt mod mul ne neg or pos pow radd rfloordiv rmod rmul rpow
rsub rtruediv sub truediv xor
""".split()  # noqa: SIM905 - as above
_ENTRYWISE: frozenset[Callable[..., Any]] = frozenset(
    getattr(owner, name)
    for owner in (torch, Tensor, functional)
    for name in (
        *_NAMES,
        *(f"{name}_" for name in _NAMES),
        *(f"__{name}__" for name in _OPERATORS),
    )
    if hasattr(owner, name)
)


class NotElementwiseError(StandInError):
    """A hook asked an `Entrywise` for something that may mix the entries of a vector."""

    verdict = "does not treat every entry by itself"


class Entrywise:
    """Stands in for a vector whose entries were computed one by one from those of given vectors.

    ``sample`` is a single number of the same type: functions are applied to it, so that types are
    right. Its value means nothing.
    """

    __slots__ = ("_sample",)
    __hash__ = None  # type: ignore[assignment]  # Python's way to have none

    def __init__(self, sample: Tensor) -> None:
        self._sample = sample

    @property
    def dtype(self) -> torch.dtype:
        """The type of the vector's numbers."""
        return self._sample.dtype

    @property
    def device(self) -> torch.device:
        """The device that the vector would be on."""
        return self._sample.device

    def new_zeros(self, *shape: Any, **options: Any) -> Tensor:
        """Return a real tensor."""
        return self._sample.new_zeros(*shape, **options)

    def new_tensor(self, data: Any) -> Tensor:
        """Return a real tensor."""
        return self._sample.new_tensor(data)

    def to(self, kind: torch.dtype | torch.device) -> Entrywise:
        """Return the vector in another type or on another device."""
        if not isinstance(kind, torch.dtype | torch.device):
            raise NotElementwiseError(f"a vector is converted to a {type(kind).__name__}")
        return Entrywise(self._sample.to(kind))

    def __getattr__(self, name: str) -> Callable[..., Entrywise]:
        function = getattr(Tensor, name, None)
        if function not in _ENTRYWISE:
            raise NotElementwiseError(f"a vector is asked for {name}")

        def method(*arguments: Any, **named: Any) -> Entrywise:
            return _applied(function, (self, *arguments), named)

        return method

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Entrywise:
        return _applied(function, args, kwargs or {})

    __bool__ = refusal(NotElementwiseError, "a vector is asked whether it is true")
    __float__ = __int__ = __index__ = __complex__ = refusal(
        NotElementwiseError, "a vector is read as a number"
    )
    __getitem__ = __setitem__ = __iter__ = __len__ = __contains__ = refusal(
        NotElementwiseError, "single entries of a vector are asked for"
    )
    __array__ = refusal(NotElementwiseError, "a vector is turned into an array")


def _operator(name: str) -> Callable[..., Entrywise]:
    function = getattr(Tensor, name)

    def operator(self: Entrywise, *others: Any) -> Entrywise:
        return _applied(function, (self, *others), {})

    return operator


for _name in _OPERATORS:
    setattr(Entrywise, f"__{_name}__", _operator(f"__{_name}__"))


def _applied(function: Any, arguments: Any, named: dict[str, Any]) -> Entrywise:
    """Return the function of vectors, if it is known to treat every entry by itself."""
    name = getattr(function, "__name__", "a function")
    if function not in _ENTRYWISE or "out" in named:
        raise NotElementwiseError(f"{name} is called")
    result = function(
        *(_sample(value, name) for value in arguments),
        **{key: _sample(value, name) for key, value in named.items()},
    )
    if not isinstance(result, Tensor) or result.shape != ():
        raise NotElementwiseError(f"{name} is called for something else than a vector")
    return Entrywise(result)


def _sample(value: Any, name: str) -> Any:
    if isinstance(value, Entrywise):
        return value._sample
    if isinstance(value, Tensor):
        if value.numel() == 1 and value.ndim <= 1:
            return value.view(())
        raise NotElementwiseError(f"{name} takes a vector and a tensor {list(value.shape)}")
    if value is None or isinstance(value, int | float | str | torch.dtype | torch.device):
        return value
    raise NotElementwiseError(f"{name} takes a vector and a {type(value).__name__}")


def check_elementwise(lane: Lane, recipe: Recipe, steps: int, samples: float) -> None:
    """Raise `NotElementwiseError` if a hook may mix entries, for a device of so many steps and D_k.

    It is also raised if a device sends anything but vectors and single numbers, or remembers
    something.
    """
    theta, buffers, extras = lane.shared
    algorithm = lane.algorithm

    def vector() -> Tensor:
        return cast(Tensor, Entrywise(theta.new_zeros(())))

    vectors = {name: vector() for name, value in extras.items() if value.shape == theta.shape}
    shared = Broadcast(vector(), buffers, {**extras, **vectors})
    with hook_on_stand_ins("direction", algorithm.name, NotElementwiseError):
        direction = algorithm.direction(vector(), vector(), shared, {})
    if not _is_vector(direction):
        raise NotElementwiseError("direction returns no vector")
    run = LocalRun(
        vector(),
        buffers,
        steps,
        step_sum(steps, recipe.momentum),
        lane.lr,
        torch.tensor(samples).to(theta),
        vector() if algorithm.start_gradient else None,
    )
    with hook_on_stand_ins("upload", algorithm.name, NotElementwiseError):
        upload, after = algorithm.upload(shared, {}, run)
    if after:
        raise NotElementwiseError("devices remember something")
    if not _is_vector(upload.delta):
        raise NotElementwiseError("upload sends no vector")
    for name, value in upload.extras.items():
        if not _is_vector(value) and value.numel() != 1:
            raise NotElementwiseError(f"upload sends a tensor {list(value.shape)} ({name})")


def _is_vector(value: object) -> bool:
    return isinstance(value, Entrywise)
