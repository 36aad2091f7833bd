"""A node that comes back tells its server that it was gone."""

from __future__ import annotations

from pathlib import Path


def say_gone(server: str, root_certificates: Path, key: Path, number: int) -> bool:
    """Tell a server that the node of this key and number is not there; return whether it heard.

    That is what a SuperNode says itself when it is asked to end. One that was killed could not: the
    server waits for its answers, and lets nobody with its key in, until it has missed its sign of
    life for a minute.
    """
    # Only a machine that runs nodes has these, and they take a while.
    import httpx  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key  # noqa: PLC0415
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest  # noqa: PLC0415
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: PLC0415
    from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: PLC0415
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor  # noqa: PLC0415

    try:
        private = load_ssh_private_key(key.read_bytes(), None)
    except (OSError, ValueError):
        return False  # the SuperNode says what is wrong with it
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        return False
    try:
        with FleetHttpClient.from_server_address(
            server,
            insecure=False,
            root_certificates=root_certificates.read_bytes(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(private, private.public_key()),
            ],
        ) as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=number))
    except (OSError, httpx.HTTPError, RuntimeError):
        return False
    return True
