"""Recognition of files of credentials by their content."""

from __future__ import annotations

import json
import random
import string

import pytest

from ability_search.files.credentials import holds_credentials

_WORD = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_TOKENS = {
    "ghp_": (_WORD, 36),
    "github_pat_": (_WORD, 82),
    "glpat-": (_WORD, 20),
    "xoxb-": (_WORD, 40),
    "sk_live_": (_WORD, 24),
    "sk-": (_WORD, 48),
    "sk-ant-api03-": (_WORD, 95),
    "hf_": (string.ascii_letters, 34),
    "npm_": (_WORD, 36),
    "pypi-": (_WORD, 150),
    "AKIA": (string.ascii_uppercase, 16),
    "AIza": (_WORD, 35),
    "dop_v1_": (_HEX, 64),
    "hvs.": (_WORD, 90),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.": (_WORD, 43),
}
"""Beginnings of tokens, their alphabets and lengths; the tokens are made here, as some readers of
repositories refuse what looks like one."""


def token(beginning: str) -> str:
    alphabet, length = _TOKENS[beginning]
    return beginning + "".join(random.Random(beginning).choices(alphabet, k=length))


@pytest.mark.parametrize("beginning", _TOKENS)
def test_a_file_of_a_token_is_recognised_and_a_text_that_quotes_it_is_not(beginning: str) -> None:
    secret = token(beginning)
    for text in (
        secret,
        f"# mine\n\n{secret}\r\n",
        f"HOST=localhost\nMY_TOKEN={secret}\n",
        f'export KEY="{secret}"  # until May\n',
        f"Authorization: Bearer {secret}\n",
        f"service:\n  - name: x\n    key: {secret}\n",
        json.dumps({"user": "me", "api_key": secret}, indent=2),
    ):
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            assert holds_credentials(text.encode(encoding)), text
    for text in (
        f"# Tokens\n\nA token looks like `{secret}`.\n",
        f"The variable is set with\n\n    MY_TOKEN={secret}\n",
        f'import os\nTOKEN = "{secret}"\n',
        json.dumps({"role": "user", "content": f"my key is {secret}"}),
        f"MY_TOKEN={beginning}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
    ):
        assert not holds_credentials(text.encode()), text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("DB_HOST=localhost\nDB_PASSWORD=q8Zr2LmX\nDEBUG=1\n", True),
        ("[db]\npasswd = q8Zr2LmX\n", True),
        ("api-secret: 'q8Zr2LmX99'\n", True),
        ("localhost:5432:*:me:q8Zr2LmX\n", True),
        ("machine example.org password q8Zr2LmX login me\n", True),
        ("me:{SHA}fCIvspJ9goryL1khNOiTJIBjfA0=\n", True),
        ("DB_PASSWORD=changeme1\nAPI_KEY=your-key-1\nSECRET=${SECRET1}\nTOKEN=<token1>\n", False),
        ("login.password=Passwort\nlogin.token=Neue Kennung 1\n", False),
        ("max_tokens = 100000\ntokenizer = cl100k_base\nhotkey = ctrl1234\n", False),
        ("sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n", False),
        ("10:20:30:40:505050\n", False),
        ("services:\n  db:\n    environment:\n      POSTGRES_PASSWORD: ${PW1}\n", False),
    ],
)
def test_settings_are_credentials_if_one_is_a_password(text: str, secret: bool) -> None:
    assert holds_credentials(text.encode()) == secret
