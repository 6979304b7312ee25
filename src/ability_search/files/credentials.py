"""Recognition of files of keys, passwords and tokens by their content, whatever their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEAD = rb"\A(?:[^\S\n]*+(?:[#;][^\n]*+)?\n)*+\s*+"
"""Comments and blank lines."""
_CREDENTIALS = re.compile(
    _HEAD + rb"(?:PuTTY-User-Key-File-|AGE-(?:SECRET-KEY|PLUGIN)-"
    rb"|-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|untrusted comment: [^\n]*secret key"
    rb"|(?:machine\s++\S++|default)\s++(?:login\s++\S++\s++password|password\s++\S++\s++login)\s"
    rb"|https?://[^\s:/@]*+:[^\s/@]++@\S++\s*+(?:\Z|https?:)|//\S+/:_(?:authToken|password|auth)="
    rb"|[\w.-]++:(?:\$(?:apr1|2[aby]|5|6|y)\$|\{S?SHA\})\S"
    rb"|(?:User name,[^\n]*)?Access key ID,Secret access key|credentials \"[^\"\n]+\" \{)"
)
"""The beginning of a file of keys or passwords: of PuTTY, age, SSH, minisign, netrc, Git, npm,
htpasswd, AWS and Terraform."""
_KEYED = tuple(
    (re.compile(_HEAD + rb"(?:" + head + rb")"), re.compile(field, re.MULTILINE))
    for head, field in (
        (rb"Bag Attributes\b|-----BEGIN ", rb"^-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"),
        (
            rb"\[[^\]\n]++\]",
            rb"^[^\S\n]*+(?:aws_secret_access_key|aws_session_token|PrivateKey|secret_key)"
            rb"[^\S\n]*+=[^\S\n]*+\S",
        ),
        (rb"\[(?:client|mysql|distutils|pypi)\]", rb"^[^\S\n]*+password[^\S\n]*+=[^\S\n]*+\S"),
        (
            rb"(?:apiVersion|clusters|contexts|current-context|kind|users):",
            rb"^[^\S\n-]*+(?:-[^\S\n]++)?+(?:client-key-data|token):[^\S\n]++\S",
        ),
    )
)
"""Beginnings of files that may hold keys or passwords, and the lines with one: of OpenSSL, AWS,
WireGuard, S3, MySQL, PyPI and Kubernetes."""
_UTF_16 = b"\xff\xfe", b"\xfe\xff"
_CREDENTIALS_IN_JSON = re.compile(
    rb'"private_key"\s*+:\s*+"-----BEGIN|"SecretAccessKey"\s*+:\s*+"[^"]'
)
_PARTS_OF_JSON = tuple(
    (re.compile(part), [re.compile(member) for member in members])
    for part, *members in (
        (rb'"auths"\s*+:\s*+\{(?:[^{}]*+\{[^{}]*+\})++', rb'"auth"\s*+:\s*+"[^"]'),
        (rb"[^{}]++", rb'"kty"\s*+:', rb'"d"\s*+:\s*+"[^"]'),
    )
)
"""Parts of JSON, and the members that make one a secret: the registries of Docker, and objects that
are JSON Web Keys."""
_CREDENTIALS_BYTES = 16 * 1024
"""Bytes of a file that show whether it is one of credentials."""
_TOKEN = (
    rb"gh[opsur]_[A-Za-z0-9]{30,255}|github_pat_\w{30,255}|gl[a-z]{2,5}-[\w.-]{20,255}"
    rb"|xox[a-z]-[\w-]{10,255}|xapp-[\w-]{20,255}|[rs]k_live_\w{16,255}|whsec_[\w+/=]{20,255}"
    rb"|sk-[\w-]{20,255}|hf_[A-Za-z]{30,64}|npm_[A-Za-z0-9]{30,64}|pypi-[\w-]{50,1024}"
    rb"|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w-]{20,2048}|GOCSPX-[\w-]{20,64}"
    rb"|eyJ[\w-]{10,4096}\.eyJ[\w-]{10,8192}\.[\w-]{10,4096}|SG\.[\w-]{16,64}\.[\w-]{16,128}"
    rb"|do[opr]_v1_[0-9a-f]{64}|hv[bs]\.[\w-]{20,512}|dckr_[a-z]{3,6}_[\w-]{20,128}"
    rb"|\d{8,10}:AA[\w-]{30,40}|lin_api_\w{30,64}|AGE-SECRET-KEY-1[A-Z0-9]{50,64}"
)
"""Tokens of GitHub, GitLab, Slack, Stripe, OpenAI, Anthropic, Hugging Face, npm, PyPI, AWS, Google,
SendGrid, DigitalOcean, Vault, Docker, Telegram, Linear and age, and JSON Web Tokens."""
_SECRET_NAME = (
    rb"(?i:secret|passw(?:or)?d|passphrase|_pass|_pwd|token|credentials?"
    rb"|(?:api|access|auth|private|secret|signing|encryption)[_-]?key)"
)
_IS_TOKEN = re.compile(rb"(?:(?i:bearer|token)[^\S\n]++)?(?:" + _TOKEN + rb")")
_IS_SECRET_NAME = re.compile(rb"[\w.-]*" + _SECRET_NAME)
_PASSWORD = re.compile(rb"(?=\D*\d)(?=[^a-zA-Z]*[a-zA-Z])[^\s<>${}()]{8,4096}")
_PLACEHOLDER = re.compile(
    rb"(?i)example|change|your|x{4}|\*{3}|\.\.\.|placeholder|dummy|sample|replace|redacted"
)
_IGNORED_LINE = re.compile(rb"(?:[#;]|//|\[[^\]]*\]\Z|---\Z)")
_ASSIGNMENT = re.compile(
    rb"(?:-[^\S\n]++)?(?:export[^\S\n]++)?[\"']?([\w.-]{1,100})[\"']?[^\S\n]*+"
    rb"(?:=[^\S\n]*+(.*)|:(?:[^\S\n]++(\S+|(?i:bearer)[^\S\n]+\S+))?)"
)
_PGPASS = re.compile(rb"(?=[^:]*[a-z/*])[^\s:#]{1,255}:(?:\d{1,5}|\*):[^\s:]+:[^\s:]+:(\S+)")
_JSON_FIELD = re.compile(
    rb'"[\w.-]{0,100}' + _SECRET_NAME + rb'"\s*+:\s*+"(' + _IS_TOKEN.pattern + rb')"'
)


def holds_credentials(data: bytes) -> bool:
    """Return True if a file is one of keys or passwords by its content, whatever its name.

    It begins as the files of a known program do, is JSON or YAML with its fields, or consists of
    settings, such as ``NAME=value``, or tokens, of which one is a token or password and not a
    placeholder. A text that only quotes credentials is no such file. A byte order mark may come
    first.
    """
    if data.startswith(_UTF_16):
        data = data[2:].replace(b"\0", b"")
    data = data.removeprefix(b"\xef\xbb\xbf")
    head = data[:_CREDENTIALS_BYTES]
    if data[:100].lstrip().startswith(b"{"):
        fields = (match[1] for match in _JSON_FIELD.finditer(head))
        return (
            bool(_CREDENTIALS_IN_JSON.search(data))
            or any(map(_is_real, fields))
            or any(_has_part(data, *known) for known in _PARTS_OF_JSON)
        )
    if _CREDENTIALS.match(head) or _is_secret_settings(head):
        return True
    return any(begins.match(head) and line.search(head) for begins, line in _KEYED)


def _has_part(data: bytes, part: re.Pattern[bytes], members: Sequence[re.Pattern[bytes]]) -> bool:
    """Return whether one part of a JSON text has all of some members."""
    if not all(member.search(data) for member in members):
        return False
    return any(all(member.search(each[0]) for member in members) for each in part.finditer(data))


def _is_secret_settings(head: bytes) -> bool:
    """Return whether a text consists of settings and tokens, one of them secret."""
    found = False
    for line in map(bytes.strip, head.splitlines()):
        if not line or _IGNORED_LINE.match(line):
            continue
        if _IS_TOKEN.fullmatch(line):
            found = found or _is_real(line)
        elif setting := _ASSIGNMENT.fullmatch(line):
            found = found or _is_secret(setting[1], setting[2] or setting[3] or b"")
        elif entry := _PGPASS.fullmatch(line):
            found = found or _is_secret(b"password", entry[1])
        else:
            return False
    return found


def _is_secret(name: bytes, value: bytes) -> bool:
    value = value.partition(b" #")[0].strip().strip(b"\"'")
    if not _is_real(value):
        return False
    named = _IS_SECRET_NAME.fullmatch(name) and _PASSWORD.fullmatch(value)
    return bool(named or _IS_TOKEN.fullmatch(value))


def _is_real(value: bytes) -> bool:
    return not _PLACEHOLDER.search(value)
