"""FedJAX: its federated averaging on the jit backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fedjax
import jax
import numpy as np
from jax import numpy as jnp

from benchmarks.peers.protocol import (
    DriverLink,
    ExportedWorkload,
    Floats,
    read_workload,
    workload_folder,
)

NOTE = "given the exact batches: its own batching would pad the last one with repeats"


class DeviceDataset(fedjax.ClientDataset):
    """A device's samples in the round's order, in mini-batches of the workload's size."""

    batch = 1

    def shuffle_repeat_batch(self, *_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        return (
            {name: values[at : at + self.batch] for name, values in self.raw_examples.items()}
            for at in range(0, len(self), self.batch)
        )


def linear(parameters: dict[str, Any], x: Any) -> Any:
    return x @ parameters["weight"].T + parameters["bias"]


def perceptron(parameters: dict[str, Any], x: Any) -> Any:
    hidden = jax.nn.relu(x @ parameters["hidden.weight"].T + parameters["hidden.bias"])
    return hidden @ parameters["head.weight"].T + parameters["head.bias"]


def convolutional(parameters: dict[str, Any], x: Any) -> Any:
    """Return the logits of the workload's network, normalised over the batch as in training."""
    for layer in range(5):
        x = jax.lax.conv_general_dilated(
            x,
            parameters[f"convs.{layer}.weight"],
            (1, 1),
            "SAME",
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )
        x = x + parameters[f"convs.{layer}.bias"][:, None, None]
        mean = x.mean((0, 2, 3), keepdims=True)
        variance = ((x - mean) ** 2).mean((0, 2, 3), keepdims=True)
        x = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
        scale, shift = parameters[f"norms.{layer}.weight"], parameters[f"norms.{layer}.bias"]
        x = jax.nn.relu(x * scale[:, None, None] + shift[:, None, None])
        if layer in (1, 3, 4):
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ parameters["fc1.weight"].T + parameters["fc1.bias"])
    return x @ parameters["fc2.weight"].T + parameters["fc2.bias"]


def gradient(workload: ExportedWorkload) -> Any:
    """Return the gradient function that FedJAX requires."""
    models = {"softmax": linear, "mlp": perceptron, "cnn": convolutional}
    if workload.facts["model"] not in models:
        raise SystemExit(f"there is no {workload.facts['model']} in jax here")
    logits = models[workload.facts["model"]]

    def loss(parameters: dict[str, Any], batch: dict[str, Any]) -> Any:
        scores = jax.nn.log_softmax(logits(parameters, batch["x"]))
        return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1).mean()

    slope = jax.grad(loss)
    return lambda parameters, batch, key: slope(parameters, batch)


def main() -> None:
    driver, workload = DriverLink(), read_workload(workload_folder())
    facts = workload.facts
    jax.config.update("jax_enable_x64", workload.theta.dtype == np.float64)
    jax.tree_map = jax.tree_util.tree_map  # removed from jax, but still used by FedJAX
    DeviceDataset.batch = facts["batch"]
    averaging = fedjax.algorithms.fed_avg.federated_averaging(
        gradient(workload),
        fedjax.optimizers.sgd(facts["lr"], momentum=facts["momentum"]),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=facts["batch"]),
    )
    state = averaging.init({name: jnp.asarray(value) for name, value in workload.tensors().items()})
    x, y = np.array(workload.x), workload.y.astype(np.int32)
    keys = jax.random.split(jax.random.PRNGKey(0), facts["devices"])

    def theta() -> Floats:
        return np.concatenate([np.asarray(state.params[name]).ravel() for name in facts["names"]])

    for turn, _ in enumerate(driver.rounds(theta, ["fedjax", "jax", "jaxlib"], note=NOTE)):
        clients = []
        for device in range(facts["devices"]):
            rows = workload.rows(turn, device)
            clients.append((str(device), DeviceDataset({"x": x[rows], "y": y[rows]}), keys[device]))
        state, _ = averaging.apply(state, clients)
        jax.block_until_ready(state.params)


if __name__ == "__main__":
    main()
