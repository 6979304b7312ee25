from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
)
from nacl.public import PublicKey, SealedBox
from tests.kadi_client.deployer import PATIENCE, encryption_key

from kadi_client.errors import AuthenticationError, DecryptionError
from kadi_client.identity import Identity, agent_id, verify

FOREIGN = X25519PrivateKey.generate()

# libsodium's own test of the conversion: test/default/ed25519_convert.c and its expected output.
SEED = bytes.fromhex("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee")
X25519_PUBLIC = bytes.fromhex("f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50")


def test_the_public_key_is_spki_der_and_the_agent_id_its_hash() -> None:
    identity = Identity.generate()
    der = base64.b64decode(identity.public_key, validate=True)
    assert len(der) == 44
    assert isinstance(load_der_public_key(der), Ed25519PublicKey)
    assert identity.agent_id == hashlib.sha256(identity.public_key.encode()).hexdigest()[:16]
    assert agent_id(identity.public_key) == identity.agent_id
    assert identity.agent_id in repr(identity)


def test_a_key_has_one_spelling_and_one_id() -> None:
    key = Identity.generate().public_key
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = alphabet[alphabet.index(key[-2]) + 1]
    spelled = f"{key[:-2]}{other}="
    assert base64.b64decode(spelled) == base64.b64decode(key)
    with pytest.raises(AuthenticationError, match="standard base64"):
        agent_id(spelled)


def test_a_signature_has_one_spelling() -> None:
    identity = Identity.generate()
    signature = identity.sign("nonce")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    spelled = f"{signature[:-3]}{alphabet[alphabet.index(signature[-3]) + 1]}=="
    assert base64.b64decode(spelled) == base64.b64decode(signature)
    with pytest.raises(AuthenticationError, match="signature is not standard base64"):
        verify(identity.public_key, spelled, "nonce")


ORDER_1 = bytes([1, *[0] * 31])
ORDER_2 = bytes([0xEC, *[0xFF] * 30, 0x7F])
ORDER_4 = bytes(32)
ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
SPKI = bytes.fromhex("302a300506032b6570032100")


@pytest.mark.parametrize("point", [ORDER_1, ORDER_2, ORDER_4, ORDER_8, bytes([2] * 32)])
def test_a_key_that_anybody_can_sign_for_is_refused(point: bytes) -> None:
    key = base64.b64encode(SPKI + point).decode()
    signature = base64.b64encode(ORDER_1 + bytes(32)).decode()
    for nonce in map(str, range(32)):
        with pytest.raises(AuthenticationError):
            verify(key, signature, nonce)


def test_the_nonce_is_signed_as_text() -> None:
    identity = Identity.generate()
    signature = identity.sign("bm9uY2U=")
    assert len(base64.b64decode(signature, validate=True)) == 64
    verify(identity.public_key, signature, "bm9uY2U=")
    with pytest.raises(AuthenticationError, match="does not match"):
        verify(identity.public_key, signature, "nonce")
    with pytest.raises(AuthenticationError, match="does not match"):
        verify(Identity.generate().public_key, signature, "bm9uY2U=")


def test_an_identity_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "id.pem"
    created = Identity.load_or_create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Identity.load_or_create(path).public_key == created.public_key
    assert [entry.name for entry in path.parent.iterdir()] == ["id.pem"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a key",
        FOREIGN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ],
)
def test_a_file_without_an_ed25519_key_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "id.pem"
    path.write_bytes(content)
    with pytest.raises(AuthenticationError, match=r"id\.pem"):
        Identity.load_or_create(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "public_key",
    [
        "!",
        "",
        base64.b64encode(b"x" * 44).decode(),
        base64.b64encode(
            FOREIGN.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ).decode(),
    ],
    ids=["no base64", "empty", "no key", "another's key"],
)
def test_malformed_keys_and_signatures_are_authentication_errors(public_key: str) -> None:
    identity = Identity.generate()
    with pytest.raises(AuthenticationError):
        verify(public_key, identity.sign("n"), "n")
    for signature in ("!", "", "AAAA"):
        with pytest.raises(AuthenticationError):
            verify(identity.public_key, signature, "n")


def test_a_box_sealed_for_libsodium_s_conversion_of_the_key_is_opened() -> None:
    identity = Identity(Ed25519PrivateKey.from_private_bytes(SEED))
    assert encryption_key(identity.public_key) == X25519_PUBLIC
    assert identity.unseal(SealedBox(PublicKey(X25519_PUBLIC)).encrypt(b"secret")) == b"secret"


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 47, b"\0" * 48, b"\0" * 100])
def test_a_damaged_box_is_an_error(damage: bytes) -> None:
    with pytest.raises(DecryptionError, match="another identity, or is damaged"):
        Identity.generate().unseal(damage)


def test_a_box_for_another_identity_is_an_error() -> None:
    other = PublicKey(encryption_key(Identity.generate().public_key))
    with pytest.raises(DecryptionError, match="another identity, or is damaged"):
        Identity.generate().unseal(SealedBox(other).encrypt(b"secret"))


def test_libsodium_is_loaded_only_to_decrypt() -> None:
    code = "import sys, kadi_client; sys.exit('nacl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE).returncode == 0
