"""Ed25519 identities of agents."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
)

from kadi_client.errors import AuthenticationError, DecryptionError


class Identity:
    """An Ed25519 key pair; brokers derive the id of an agent from its public key.

    Example:
        identity = Identity.load_or_create(Path("agent.pem"))
        print(identity.agent_id)

    The private key never leaves the object except into its file.
    """

    __slots__ = ("_private", "public_key")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        der = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.public_key = base64.b64encode(der).decode("ascii")
        """Standard base64 of the 44-byte SPKI DER."""

    @classmethod
    def generate(cls) -> Identity:
        """Generate an identity that is not stored and ends with the process."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> Identity:
        """Load the identity from a PEM file; create the file with mode 0600 if it is missing.

        Example:
            identity = Identity.load_or_create(Path("agent.pem"))
            async with Connection("ws://localhost:8080/kadi", identity=identity) as broker:
                print(broker.agent_id)

        Raises:
            AuthenticationError: if the file does not contain an unencrypted Ed25519 key.
        """
        try:
            pem = path.read_bytes()
        except FileNotFoundError:
            return cls._create(path)
        try:
            private = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as exc:
            raise AuthenticationError(f"{path.name} does not contain a private key") from exc
        if not isinstance(private, Ed25519PrivateKey):
            raise AuthenticationError(f"{path.name} contains a key that is not Ed25519")
        return cls(private)

    @classmethod
    def _create(cls, path: Path) -> Identity:
        identity = cls.generate()
        pem = identity._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
        temporary.replace(path)
        return identity

    @property
    def agent_id(self) -> str:
        """The id that brokers derive from the public key, see :func:`agent_id`."""
        return agent_id(self.public_key)

    def sign(self, nonce: str) -> str:
        """Return the base64 Ed25519 signature over the UTF-8 bytes of the nonce string."""
        return base64.b64encode(self._private.sign(nonce.encode())).decode("ascii")

    def unseal(self, box: bytes) -> bytes:
        """Decrypt a libsodium sealed box for the X25519 form of this key.

        Raises:
            DecryptionError: if it was sealed for another key, or is damaged.
        """
        # Imported here because few programs need libsodium.
        from nacl.bindings import crypto_sign_ed25519_sk_to_curve25519
        from nacl.exceptions import CryptoError
        from nacl.public import PrivateKey, SealedBox

        own = self._private.private_bytes_raw() + self._private.public_key().public_bytes_raw()
        try:
            return SealedBox(PrivateKey(crypto_sign_ed25519_sk_to_curve25519(own))).decrypt(box)
        except CryptoError as exc:
            text = "the box was sealed for another identity, or is damaged"
            raise DecryptionError(text) from exc

    def __repr__(self) -> str:
        return f"Identity({self.agent_id})"


@lru_cache(maxsize=1024)  # asked for at every call of a tool
def agent_id(public_key: str) -> str:
    """Return the first 16 hex digits of SHA-256 over the base64 text of a public key.

    Raises:
        AuthenticationError: if it is not canonical standard base64.
    """
    _decoded("publicKey", public_key)
    return hashlib.sha256(public_key.encode()).hexdigest()[:16]


def verify(public_key: str, signature: str, nonce: str) -> None:
    """Verify that ``signature`` over ``nonce`` was made with the private key of ``public_key``.

    Raises:
        AuthenticationError: if it was not, or if any argument is malformed.
    """
    from nacl.bindings import crypto_core_ed25519_is_valid_point

    try:
        key = load_der_public_key(_decoded("publicKey", public_key))
        if not isinstance(key, Ed25519PublicKey):
            raise AuthenticationError("publicKey is not an Ed25519 key in SPKI DER")
        # One signature of a key of small order fits many nonces, and anybody can make it.
        if not crypto_core_ed25519_is_valid_point(key.public_bytes_raw()):
            raise AuthenticationError("publicKey is not a point of the prime-order group")
        key.verify(_decoded("signature", signature), nonce.encode())
    except InvalidSignature as exc:
        raise AuthenticationError("signature does not match the nonce") from exc
    except ValueError as exc:
        raise AuthenticationError(f"malformed publicKey: {exc}") from exc


def _decoded(field: str, text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise AuthenticationError(f"{field} is not standard base64") from exc
    # Unused trailing bits would give one key several ids, and one signature several forms.
    if base64.b64encode(data) != text.encode():
        raise AuthenticationError(f"{field} is not standard base64")
    return data
