"""Addresses that a process listens on. Pure."""

_PORT_MAX = 65535


def read_address(text: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 address is in brackets, and port 0 lets the system choose.

    Raises:
        ValueError: the text is not an address.
    """
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    is_host = bool(host) and (bracketed or ":" not in host)
    if not (is_host and port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
        raise ValueError(f"{text!r} is not HOST:PORT, such as 0.0.0.0:8080")
    return host, int(port)
