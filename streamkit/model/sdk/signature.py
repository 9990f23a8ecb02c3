"""Sign requests in JSON as AWS asks for it: Signature Version 4. Pure.

In: where a client's requests go, one request's body, credentials, and the time. Out: its headers,
the same as botocore's signer makes. A key is derived from the secret once a day, and not for each
request. https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
"""

import hashlib
import hmac
from typing import Any
from urllib.parse import urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


class Signer:
    """Signs the requests of one client.

    Args:
        url: where they are sent to; its path is "/".
        region: the Region that signs.
        service: the service's name in signatures.
    """

    def __init__(self, url: str, region: str, service: str) -> None:
        parts = urlsplit(url)
        ordinary = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        self._host = host if ordinary else f"{host}:{parts.port}"
        self._place = f"{region}/{service}/aws4_request"
        self._secret: tuple[str, str] = ("", "")
        self._key = b""

    def sign(self, headers: dict[str, str], body: bytes, credentials: Any, moment: str) -> None:
        """Add the signature to a request's headers, which proves the sender's credentials.

        Args:
            headers: those that are signed, such as `X-Amz-Target`.
            body: the body of the request.
            credentials: an access key, its secret key, and perhaps a token.
            moment: now, as `20260131T235959Z`.
        """
        headers["X-Amz-Date"] = moment
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
        signed = {name.lower(): value for name, value in headers.items()} | {"host": self._host}
        names = sorted(signed)
        lines = "".join(f"{name}:{' '.join(signed[name].split())}\n" for name in names)
        listed = ";".join(names)
        request = f"POST\n/\n\n{lines}\n{listed}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{moment[:8]}/{self._place}"
        text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(
            self._derived(credentials.secret_key, scope), text.encode(), "sha256"
        )
        headers["Authorization"] = (
            f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={listed},"
            f" Signature={signature.hex()}"
        )

    def _derived(self, secret: str, scope: str) -> bytes:
        """Return the key that is derived from a secret, for one day, Region and service."""
        if self._secret != (secret, scope):
            key = f"AWS4{secret}".encode()
            for part in scope.split("/"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._secret, self._key = (secret, scope), key
        return self._key
