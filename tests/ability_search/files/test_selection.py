"""Selection of files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.files.opened_files import load

from ability_search.errors import ForbiddenPath, InvalidInput
from ability_search.files.selection import (
    SECRET,
    Sweep,
    allowed,
    select,
    unmatched_patterns,
)


def test_links_are_followed_before_the_root_is_checked(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for directory in (inside, outside):
        directory.mkdir()
        (directory / "a.md").write_text("a")
    (inside / "link").symlink_to(outside)
    assert allowed("a.md", [inside], base=inside) == (inside / "a.md", inside)
    for path in ("link/a.md", "../out/a.md", str(outside), "/"):
        with pytest.raises(ForbiddenPath):
            allowed(path, [inside], base=inside)
    assert allowed("link/a.md", [inside, outside], base=inside)[1] == outside
    with pytest.raises(InvalidInput, match="no such file"):
        allowed("b.md", [inside], base=inside)


def test_files_are_sorted_by_name_without_installed_packages(tmp_path: Path) -> None:
    for name in ("b.md", "a.md", "sub/c.md", ".git/x.md", "node_modules/y.md", "z.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    chosen = select(tmp_path, tmp_path)
    names = [file.relative_to(tmp_path).as_posix() for file in chosen.files]
    assert names == ["a.md", "b.md", "sub/c.md"]
    assert chosen.prefix == ""
    assert select(tmp_path / "sub", tmp_path).prefix == "sub/"


def test_an_unreadable_directory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.md").write_text("x")
    scan = os.scandir

    def guarded(path: str) -> object:
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)
    chosen = select(tmp_path, tmp_path)
    assert [file.name for file in chosen.files] == ["a.md"]
    assert [(item.path, item.reason) for item in chosen.skipped] == [
        ("closed", "Permission denied")
    ]


def test_gitignore_files_apply_if_requested(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    for name in ("a.md", "b.log", "sub/c.log", "sub/keep.log", "sub/build/d.md", "out/e.md"):
        (repository / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / "docs" / name).write_text("x")
    (repository / ".git").mkdir()
    (repository / ".gitignore").write_text("*.log\n/docs/out/\n")
    (repository / "docs" / "sub" / ".gitignore").write_text("!keep.log\nbuild/\n")
    (tmp_path / ".gitignore").write_text("*.md\n")
    top = repository / "docs"

    def names(**options: Any) -> list[str]:
        chosen = select(top, tmp_path, exclude=[".gitignore"], **options)
        return [file.relative_to(top).as_posix() for file in chosen.files]

    assert names(gitignore=True) == ["a.md", "sub/keep.log"]
    assert len(names()) == 6


def test_the_exclude_file_of_a_repository_is_read(tmp_path: Path) -> None:
    for name in ("a.md", "b.log", "sub/c.log", "sub/keep.log", "inner/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    for repository, rules in ((tmp_path, "*.log\n"), (tmp_path / "inner", "d.txt\n")):
        (repository / ".git" / "info").mkdir(parents=True)
        (repository / ".git" / "info" / "exclude").write_text(rules)
    (tmp_path / "sub" / ".gitignore").write_text("!keep.log\n.gitignore\n")

    def names(path: Path) -> list[str]:
        chosen = select(path, tmp_path, gitignore=True)
        return [file.relative_to(tmp_path).as_posix() for file in chosen.files]

    assert names(tmp_path) == ["a.md", "sub/keep.log"]
    assert names(tmp_path / "sub") == ["sub/keep.log"]


def test_files_of_secrets_are_left_out_and_named(tmp_path: Path) -> None:
    secrets = [
        *("prod.env", ".env~", "#.env#", "..env.swp", ".AWS/config", "wallet.dat"),
        *(".env", ".git-credentials", ".netrc", ".npmrc", "Credentials.json", "kdb/x.kdbx"),
        *("home/.aws/credentials", ".ssh/config", "sub/client_secret_1.json"),
        *(".bash_history", ".Renviron", "token.json", ".m2/settings.xml", ".azure/tokens"),
        *("infra/terraform.tfstate", "infra/kubeconfig", "infra/prod.tfvars"),
    ]
    plain = ["a.md", "credentials/readme.md", "docs/netrc.md", "infra/main.tf", "npmrc"]
    for name in [*secrets, *plain]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text(".gitignore\n.npmrc\n")

    def taken(**options: Any) -> tuple[list[str], list[str]]:
        chosen = select(tmp_path, tmp_path, gitignore=True, **options)
        files = [file.relative_to(tmp_path).as_posix() for file in chosen.files]
        assert {each.reason for each in chosen.skipped} <= {SECRET}
        return sorted(files), sorted(each.path for each in chosen.skipped)

    left_out = {*secrets} - {".npmrc", ".ssh/config", ".azure/tokens"} | {".ssh", ".azure"}
    assert taken() == (plain, sorted(left_out))
    assert taken(include=["*.json", "*.md"], exclude=["sub/"]) == (
        ["a.md", "credentials/readme.md", "docs/netrc.md"],
        [".azure", ".ssh", "Credentials.json", "token.json"],
    )


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", True),
        ("\n-----BEGIN PRIVATE KEY-----\nabc\n", True),
        ("PuTTY-User-Key-File-3: ssh-ed25519\n", True),
        ('{"type": "service_account", "private_key" : "-----BEGIN PRIVATE KEY-----\\nab"}', True),
        ("-----BEGIN CERTIFICATE-----\nabc\n", False),
        ("A key begins with:\n-----BEGIN PRIVATE KEY-----\n", False),
        ('{"private_key": "set it in the environment"}', False),
        ("# created: 2026\n# public key: age1x\nAGE-SECRET-KEY-1QQ\n", True),
        ("Bag Attributes\n    x: y\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n", True),
        ("-----BEGIN CERTIFICATE-----\nabc\n-----BEGIN RSA PRIVATE KEY-----\n", True),
        ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n", True),
        ("# mine\n\nmachine example.org\n  login me\n  password x\n", True),
        ("https://me:token@example.org\n", True),
        ("//registry.example.org/:_authToken=abc\n", True),
        ("me:$apr1$ab$cd\n", True),
        ("[default]\nregion = x\naws_access_key_id = A\naws_secret_access_key = b\n", True),
        ("[distutils]\nindex-servers = pypi\n[pypi]\npassword = pypi-x\n", True),
        ("[Interface]\nPrivateKey = abc=\n", True),
        ("Access key ID,Secret access key\nA,b\n", True),
        ('{"auths": {"example.org": {"auth": "bWU6eA=="}}}', True),
        ('{"auths": {"a.org": {}, "b.org": {"auth": "bWU6eA=="}}}', True),
        ('{"kty": "OKP", "crv": "Ed25519", "d": "abc"}', True),
        (f'{{"keys": [{{"d": "abc", "n": "{"x" * 342}", "kty": "RSA"}}]}}', True),
        ("apiVersion: v1\nkind: Config\nusers:\n- user:\n    token: abc\n", True),
        ("The command age-keygen prints AGE-SECRET-KEY-1QQ.\n", False),
        ("Set aws_secret_access_key = b in [default].\n", False),
        ("[project]\nname = 'x'\npassword = 'y'\n", False),
        ("[default]\naws_secret_access_key =\nregion = x\n", False),
        ("https://example.org/a:b@c\n", False),
        ("machine learning\npassword rules\n", False),
        ('{"auths": {}}', False),
        ('{"auths": {"a.org": {}}, "request": {"auth": "none"}}', False),
        ('{"jwk": {"kty": "OKP", "x": "abc"}, "days": {"d": "Monday"}}', False),
        ("apiVersion: v1\nkind: ConfigMap\ndata:\n  tokens: abc\n", False),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_of_credentials_of_any_name_is_a_secret(
    tmp_path: Path, text: str, secret: bool, encoding: str
) -> None:
    (tmp_path / "deploy").write_text(text, encoding)
    files, skipped = load(select(tmp_path, tmp_path), max_bytes=1000)
    assert [each.reason for each in skipped] == [SECRET] * secret
    assert [each.source for each in files] == ["deploy"] * (not secret)


def test_an_unreadable_gitignore_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    (tmp_path / "a.md").write_text("x")
    assert len(select(tmp_path, tmp_path, gitignore=True).files) == 1


def test_a_link_that_is_removed_while_it_is_followed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("a")
    (tmp_path / "b.md").symlink_to("a.md")

    def gone(path: Any, **_: Any) -> str:
        raise FileNotFoundError(2, "No such file or directory", os.fspath(path))

    monkeypatch.setattr(os, "readlink", gone)
    assert select(tmp_path, tmp_path).files == (tmp_path / "a.md",)


def test_patterns_that_match_nothing_and_links_that_are_not_followed_are_named(
    tmp_path: Path,
) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    for path in (outside / "o.md", top / "docs" / "a.md", top / "b.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (top / "away.md").symlink_to(outside / "o.md")
    (top / "broken.md").symlink_to("nowhere.md")
    (top / "elsewhere").symlink_to(outside)
    (top / "inside").symlink_to(top / "docs")
    (top / "left").symlink_to(outside)
    os.mkfifo(top / "pipe.md")
    include = ["./docs/a.md", "*.md", "./a.md", "docs/none.md", "!b.md", "# a comment"]
    found = select(top, top, include=include, exclude=["left/", "drafts/"])
    assert found.files == (top / "docs" / "a.md",)
    assert {each.path: each.reason for each in found.skipped} == {
        "away.md": "a link that leads outside the directory that may be read; not followed",
        "broken.md": "a link that leads nowhere",
        "elsewhere": "a link to a directory; not followed",
        "inside": "a link to a directory; not followed",
        "pipe.md": "not a regular file",
    }
    assert {each.path for each in unmatched_patterns([found])} == {
        *("./a.md", "docs/none.md", "drafts/", "!b.md", "# a comment"),
    }
    other = select(outside, outside, include=["./a.md", "docs/none.md"])
    # Of several directories, a pattern has to match in one.
    assert {each.path for each in unmatched_patterns([found, other])} == {"./a.md", "docs/none.md"}


@pytest.mark.parametrize("pattern", ["[", "#a.md", "", " ", "!x*", "docs//a.md", "/tmp/a.md", "/"])
def test_a_pattern_without_effect_is_named(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.md").write_text("text")
    for include, exclude in (([pattern], []), ([], ["*.log", pattern])):
        found = select(tmp_path, tmp_path, include=include, exclude=exclude)
        assert pattern in {each.path for each in unmatched_patterns([found])}


@pytest.mark.parametrize("pattern", ["{a,b}.md", "docs/*.{md,txt}", "!{a,b}", "x{,y}"])
def test_alternatives_in_braces_are_refused(tmp_path: Path, pattern: str) -> None:
    for include, exclude in (([pattern], []), ([], ["*.md", pattern])):
        with pytest.raises(InvalidInput, match="braces") as caught:
            select(tmp_path, tmp_path, include=include, exclude=exclude)
        assert pattern in str(caught.value)
    (tmp_path / "{a}.md").write_text("text")
    assert select(tmp_path, tmp_path, include=["{a}.md"]).files == (tmp_path / "{a}.md",)


def test_a_source_is_gone_if_its_file_is_or_a_pattern_leaves_it_out(tmp_path: Path) -> None:
    for name in ("a.md", "b.log", "sub/c.log", "sub/d.md", "sub/deep/e.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub" / ".gitignore").write_text("!c.log\n")
    found = select(tmp_path, tmp_path, include=["*.md"], exclude=["deep/"], gitignore=True)
    sources = ["a.md", "b.log", "sub/c.log", "sub/d.md", "sub/deep/e.md", "sub/gone.md", "/etc"]
    swept = found.swept([*sources, "a\0.md", "x" * 300])
    assert swept == Sweep(["sub/gone.md", "/etc", "b.log", "sub/deep/e.md"], {})


@pytest.mark.parametrize(
    ("left", "doubtful"),
    [
        ((), True),
        ((".DS_Store",), True),
        (("lost+found/",), True),
        (("deep/er/.hidden",), True),
        (("b.png",), False),
        (("deep/er/b.png",), False),
    ],
)
def test_the_sources_of_a_directory_that_is_there_but_empty_are_doubtful(
    tmp_path: Path, left: tuple[str, ...], doubtful: bool
) -> None:
    """It may be the place of a drive that is not mounted; a directory that is gone is none."""
    for name in (*(f"{n}.md" for n in range(9)), *(f"mnt/{each}" for each in left)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("text")
    (tmp_path / "mnt").mkdir(exist_ok=True)
    drive = ["mnt/a.md", "mnt/sub/b.md", "mnt/sub/c.md"]
    sources = [*(f"{n}.md" for n in range(9)), *drive, "gone/d.md", "gone/e.md"]
    found = select(tmp_path, tmp_path)
    swept = found.swept(sources)
    assert swept.doubtful == ({"mnt/": drive} if doubtful else {})
    assert sorted([*swept.gone, *drive * doubtful]) == sorted([*drive, "gone/d.md", "gone/e.md"])


def test_sources_that_became_secrets_or_are_behind_a_link_are_swept(tmp_path: Path) -> None:
    for name in ("a.md", "b.env", "real/c.md", "d.md", "e.md", "f.md", "g.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "link").symlink_to("real")
    sources = ["a.md", "b.env", "link/c.md", "real/c.md", "d.md", "e.md", "f.md", "g.md"]
    found = select(tmp_path, tmp_path)
    assert found.swept(sources) == Sweep(["b.env", "link/c.md"], {})
    assert {each.path: each.stale for each in found.skipped} == {"b.env": True, "link": False}
