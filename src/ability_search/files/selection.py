"""Selection of local files, within the allowed directories."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec

from ability_search.errors import ForbiddenPath, InvalidInput
from ability_search.files.regular_files import open_regular

_SECRETS = (
    *("*.env", ".env.*", ".env~", r"\#.env#", "..env.sw?", ".envrc"),
    *("secrets.toml", "secrets.json", "secrets.yml", "secrets.yaml"),
    *("*.key", "*.pem", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "**/.ssh/**", "**/.gnupg/**"),
    *(".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".s3cfg"),
    *(".git-credentials", ".dockercfg", ".dockerconfigjson", "**/.docker/config.json"),
    *("**/.kube/config", "**/.config/gh/hosts.yml", ".boto", "rclone.conf", ".mylogin.cnf"),
    *("**/.aws/credentials", "**/.aws/config", "credentials.json", "credentials.toml"),
    *("client_secret*.json", "service-account*.json", "service_account*.json", ".vault-token"),
    *("application_default_credentials.json", "credentials.tfrc.json", ".terraformrc"),
    *("kubeconfig", "*.kubeconfig", "*.tfstate", "*.tfstate.backup", "*.ovpn"),
    *("*.tfvars", "*.tfvars.json", "credentials.y*ml", "wallet.dat", ".renviron", ".yarnrc*"),
    *("token.json", "tokens.json", "auth.json", ".*_history", "secring.*", ".databrickscfg"),
    *("**/.cargo/credentials", "**/.gem/credentials", "**/.bundle/config", "**/.m2/settings.xml"),
    *("**/huggingface/token", "**/.azure/**", "**/gcloud/**/credentials.db", "**/.oci/config"),
)
"""Files of keys, passwords and tokens, which are never indexed."""
_SEVERAL = 4
_BRACES = re.compile(r"(?<!\\)\{[^{},]{0,255}+,[^{}]{0,255}\}")
_HERE = re.compile(r"\A(!?)\./")
_NOWHERE = "a link that leads nowhere"
SECRET = "may hold a key, a password or a token: never indexed"
_LEFT_OUT = (".git/", ".hg/", ".svn/", "node_modules/", "__pycache__/", ".venv/", "*.pyc")
_NEVER = GitIgnoreSpec.from_lines((*_LEFT_OUT, *_SECRETS))
_SECRET = GitIgnoreSpec.from_lines(_SECRETS)
_LARGEST_GITIGNORE = 1024 * 1024

Identity = tuple[int, int]
"""Device and inode number of a file: equal for all its hard links."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, and the reason; the path is relative to the root."""

    path: str
    reason: str
    part: bool = False
    """Whether only a part of it was not read, which ``path`` names after ``#``."""
    stale: bool = False
    """Whether an earlier text of it, if stored, is to be deleted."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected files of a directory tree."""

    root: Path
    """Directory to which sources are relative."""
    files: tuple[Path, ...]
    prefix: str
    """Common beginning of the sources of files below the path."""
    within: Path
    """Directory that no file may lead out of, without links in its path."""
    skipped: tuple[Skipped, ...] = ()
    """Directories that could not be read, files of secrets, and further names of a file."""
    secrets: frozenset[Identity] = frozenset()
    """Key files and files of secrets in the tree, and in the directories above it."""
    excludes: Callable[[Path], bool] = lambda _: False
    """Returns whether the patterns to leave out, or ``.gitignore``, leave out a path, or it is a
    secret or behind a link to a directory."""
    includes: Callable[[Path], bool] = lambda _: True
    """Returns whether the patterns to include name a path, or there are none."""
    unmatched: frozenset[str] = frozenset()
    """Patterns of the caller that match no file."""

    def swept(self, sources: Iterable[str]) -> Sweep:
        """Return which stored sources are removed because their files vanished or are left out now.

        Files that cannot be read are neither, nor are those that ``include`` does not name.
        """
        stored = [source for source in sources if source.startswith(self.prefix)]
        selected = {file.relative_to(self.root).as_posix() for file in self.files}
        others = [(source, self.root / source) for source in stored if source not in selected]
        missing = [source for source, file in others if vanished(file)]
        known = {*missing}
        gone = missing + [
            source for source, file in others if source not in known and self.excludes(file)
        ]
        if needs_consent(len(gone), len(stored), files=bool(self.files)):
            return Sweep((), {self.prefix: gone})
        doubtful = self.emptied(missing)
        held = {source for some in doubtful.values() for source in some}
        return Sweep([source for source in gone if source not in held], doubtful)

    def emptied(self, missing: Iterable[str]) -> dict[str, list[str]]:
        """Return, by directory, the missing sources of directories that are there, but empty.

        Such a directory below the path may be that of a drive that is not mounted, if several
        sources are missing in it. Hidden files do not count.
        """
        known: dict[Path, bool] = {}
        found: dict[str, list[str]] = {}
        for source in missing:
            above = filter(os.path.exists, (self.root / source).parents)
            directory = next(above)
            below = directory != self.root and directory.is_relative_to(self.root)
            place = f"{directory.relative_to(self.root).as_posix()}/" if below else ""
            if below and place.startswith(self.prefix) and _is_empty(directory, known):
                found.setdefault(place, []).append(source)
        return {place: sources for place, sources in found.items() if len(sources) > 1}

    def only(self, files: Set[Path]) -> Selection:
        """Return the selection reduced to these files, without those skipped."""
        return replace(self, files=tuple(file for file in self.files if file in files), skipped=())


@dataclass(frozen=True, slots=True)
class Sweep:
    """The stored sources of a directory that a sweep removes."""

    gone: Sequence[str]
    doubtful: Mapping[str, Sequence[str]]
    """Sources that are removed only if that is confirmed, by directory."""


def allowed(path: str, roots: Sequence[Path], *, base: Path) -> tuple[Path, Path]:
    """Return the real path, with links resolved, and the allowed root that contains it.

    Args:
        path: The path given by the caller.
        roots: Directories that may be read.
        base: Directory to which a relative path is relative.

    Raises:
        ForbiddenPath: if the path is outside all roots, or names a key file or file of secrets.
        InvalidInput: if it does not exist.
    """
    if "\0" in path:
        raise InvalidInput("path", "holds a NUL character")
    try:
        real = (base / path).resolve()
    except (OSError, RuntimeError) as exc:
        raise InvalidInput("path", "leads in circles, or nowhere") from exc
    for root in roots:
        resolved = root.resolve()
        if real.is_relative_to(resolved):
            if not os.path.exists(real):
                raise InvalidInput("path", "no such file or directory on the worker's machine")
            if is_secret(Path(path).name) or is_secret(real.relative_to(resolved).as_posix()):
                raise ForbiddenPath(f"path: {SECRET}", hint="Choose another file.")
            return real, resolved
    raise ForbiddenPath(
        "path: lies outside the directories that this worker may read",
        hint="Add its directory to the setting allowed_roots (SEARCH_ALLOWED_ROOTS).",
    )


def select(
    path: Path,
    root: Path,
    *,
    names_from: Path | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    temporary: Sequence[str] = (),
    gitignore: bool = False,
    known_secrets: dict[Path, frozenset[Identity]] | None = None,
) -> Selection:
    """Return the files below a path, or the file at the path, in the order of their names.

    Version control, installed packages and secrets are left out; other hidden files are not. Files
    of secrets that would be selected otherwise are named in ``skipped``, and so are links to a file
    that is selected under another name, and links that are not followed: to directories, and to
    places outside the root. The files are checked again when they are read, see
    :func:`ability_search.files.file_documents.open_files`.

    Args:
        path: As returned by :func:`allowed`.
        root: The allowed root that contains it.
        names_from: Directory to which sources are relative. Default: the root.
        include: Patterns of files to select. Default: all files.
        exclude: Patterns of files and directories to leave out.
        temporary: Further such patterns, which need not match anything.
        gitignore: Also leave out files matched by ``.gitignore`` and ``.git/info/exclude`` files,
            in the path and above it up to the top of the repository.
        known_secrets: Secrets of the directories listed so far, if several paths are selected.

    Raises:
        InvalidInput: if a pattern is not in gitignore syntax.
    """
    base = names_from or root
    below = path.relative_to(base).as_posix()
    prefix = "" if below == "." else f"{below}/"
    secrets = _secrets_above(path, root, {} if known_secrets is None else known_secrets)
    if not path.is_dir():
        return Selection(base, (path,), prefix, root, secrets=frozenset(secrets))
    skipped: list[Skipped] = []

    def leave_out(left: Path, reason: str, stale: bool = False) -> None:
        skipped.append(Skipped(shown(left.relative_to(base).as_posix()), reason, stale=stale))

    rules = _Rules(path, include, exclude, temporary, gitignore=gitignore)
    files: dict[Path, Path] = {}
    for file in _walk(path, rules, leave_out):
        secret = is_secret(file.relative_to(path).as_posix())
        if secret:
            secrets.update(_identity(file))
        if rules.exclude(file) or not rules.include(file):
            continue
        if problem := SECRET if secret else _unfollowed(file, root):
            # What a link that leads nowhere leads to may be on a drive that is not mounted.
            leave_out(file, problem, stale=problem != _NOWHERE)
        elif real := real_path(file):
            files[file] = real
    selection = Selection(
        *(base, tuple(files), prefix, root, tuple(skipped), frozenset(secrets)),
        excludes=rules.leave_out,
        includes=rules.include,
        unmatched=frozenset(rules.unmatched),
    )
    return named_once([selection], files)[0]


def _unfollowed(file: Path, root: Path) -> str:
    """Return why a path that is no directory is not read; empty if it is."""
    real = real_path(file)
    if real is None:
        return _NOWHERE if file.is_symlink() else ""
    if not real.is_relative_to(root):
        return "a link that leads outside the directory that may be read; not followed"
    return "" if real.is_file() else "not a regular file"


def unmatched_patterns(selections: Sequence[Selection]) -> tuple[Skipped, ...]:
    """Return the patterns that match no file of any of the selections."""
    patterns = frozenset[str].intersection(*(each.unmatched for each in selections))
    return tuple(Skipped(each, "a pattern that matches no file") for each in sorted(patterns))


def named_once(selections: Sequence[Selection], real: Mapping[Path, Path]) -> list[Selection]:
    """Return the selections with one name of each file, preferably that of no link.

    The other names are added to ``skipped``. ``real`` has the path of each name, with links
    resolved, in the order of preference.
    """
    names = {path: file for file, path in reversed(list(real.items()))}
    names |= {file: file for file, path in real.items() if file == path}
    found = []
    for selection in selections:
        kept: list[Path] = []
        links: list[Skipped] = []
        for file in selection.files:
            name = names[real[file]]
            if name == file:
                kept.append(file)
                continue
            at = name.relative_to(selection.root) if name.is_relative_to(selection.root) else name
            reason = f"a link to the file that is indexed as {shown(at.as_posix())}"
            path = file.relative_to(selection.root).as_posix()
            links.append(Skipped(shown(path), reason, stale=True))
        skipped = (*selection.skipped, *links)
        found.append(replace(selection, files=tuple(kept), skipped=skipped))
    return found


def real_path(file: Path) -> Path | None:
    """Return the path with links resolved; ``None`` if it leads nowhere, perhaps only just now."""
    try:
        return Path(os.path.realpath(file, strict=True))
    except OSError:
        return None


def needs_consent(gone: int, stored: int, *, files: bool) -> bool:
    """Return whether a sweep is refused unless it is confirmed: a drive may not be mounted.

    It is if there are no files, or if all of several sources would be removed, or four or more
    that are more than half.

    Args:
        gone: Number of sources to remove.
        stored: Number of all sources stored below the directory.
        files: Whether the directory has files.
    """
    most = gone >= _SEVERAL and 2 * gone > stored
    return gone > 0 and (not files or most or gone == stored > 1)


def kept_texts(sources: Sequence[str]) -> list[str]:
    """Return a warning for files that could not be read, of which an earlier text is stored."""
    if not sources:
        return []
    some = ", ".join(map(repr, sources[:3])) + ", ..." * (len(sources) > 3)
    return [f"skipped files keep the text that was read before, {len(sources):,}: {some}"]


def vanished(file: Path) -> bool:
    """Return whether a file no longer exists; false if that cannot be determined.

    It is false for what cannot be the name of a file, because that never was one.
    """
    try:
        return not stat.S_ISREG(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False


def _is_empty(directory: Path, known: dict[Path, bool]) -> bool:
    """Return whether a directory has nothing but hidden files, and directories without others.

    Args:
        directory: The directory.
        known: The answers so far, which are completed.
    """
    if directory not in known:
        try:
            with os.scandir(directory) as entries:
                known[directory] = all(
                    _is_empty(Path(each.path), known)
                    if each.is_dir(follow_symlinks=False)
                    else each.name.startswith(".")
                    for each in entries
                )
        except OSError:
            known[directory] = False
    return known[directory]


def shown(name: str) -> str:
    """Return a path as text; bytes that are not valid UTF-8 are replaced."""
    return name.encode("utf-8", "replace").decode()


def _patterns(patterns: Sequence[str], name: str) -> GitIgnoreSpec:
    for pattern in patterns:
        if _BRACES.search(pattern):
            problem = f"{pattern}: alternatives in braces are not in gitignore syntax"
            raise InvalidInput(name, problem, hint="Give each alternative as a pattern.")
    try:
        return GitIgnoreSpec.from_lines(_HERE.sub(r"\1/", each) for each in patterns)
    except ValueError as exc:
        raise InvalidInput(name, "not in gitignore syntax", hint="Example: *.md") from exc


class _Rules:
    """The patterns of a selection, and which of them match anything.

    Args:
        top: The directory to which the patterns are relative.
        include: Patterns of files to select; none select all.
        exclude: Patterns of files and directories to leave out.
        temporary: Further such patterns, of which no match is expected.
        gitignore: Whether files of Git leave out files too.
    """

    def __init__(
        self,
        top: Path,
        include: Sequence[str],
        exclude: Sequence[str],
        temporary: Sequence[str],
        *,
        gitignore: bool,
    ) -> None:
        self._top = top
        self._wanted = _patterns(include, "include") if include else None
        self._unwanted = _patterns([*_LEFT_OUT, *temporary, *exclude], "exclude")
        self.ignored = _Ignored(top) if gitignore else None
        self.unmatched = {
            each: _patterns([each.removeprefix("!")], "exclude") for each in (*include, *exclude)
        }
        """Patterns that have matched nothing so far; negated ones match what they bring back."""

    def exclude(self, path: Path, *, directory: bool = False) -> bool:
        """Return whether a path is left out."""
        relative = path.relative_to(self._top).as_posix() + "/" * directory
        for pattern in [each for each, spec in self.unmatched.items() if spec.match_file(relative)]:
            del self.unmatched[pattern]
        ignored = self.ignored is not None and self.ignored.names(path, directory=directory)
        return ignored or self._unwanted.match_file(relative)

    def leave_out(self, file: Path) -> bool:
        """Return whether a file is left out, is a secret, or is behind a link to a directory."""
        if not file.is_relative_to(self._top):
            return False
        secret = is_secret(file.relative_to(self._top).as_posix())
        return secret or self.exclude(file) or os.path.realpath(file.parent) != str(file.parent)

    def include(self, file: Path) -> bool:
        """Return whether a file is selected if it is not left out."""
        wanted = self._wanted
        return wanted is None or wanted.match_file(file.relative_to(self._top).as_posix())


class _Ignored:
    """Rules of git; for each path the nearest directory with a match decides.

    In a directory, ``.gitignore`` takes precedence over ``.git/info/exclude``.
    """

    def __init__(self, top: Path) -> None:
        self._specs: dict[Path, GitIgnoreSpec] = {}
        above = [top, *top.parents]
        repository = next((n for n, each in enumerate(above) if (each / ".git").exists()), 0)
        for directory in above[1 : repository + 1]:
            self.read(directory)

    def read(self, directory: Path) -> None:
        """Load the files of a directory that exist and can be read."""
        lines: list[str] = []
        for name in (".git/info/exclude", ".gitignore"):
            with suppress(OSError), open_regular(directory / name) as file:
                lines += file.read(_LARGEST_GITIGNORE).decode("utf-8", "replace").splitlines()
        if lines:
            with suppress(ValueError):
                self._specs[directory] = GitIgnoreSpec.from_lines(lines)

    def names(self, path: Path, *, directory: bool) -> bool:
        """Return whether the loaded rules leave out a path."""
        for here in path.parents:
            spec = self._specs.get(here)
            if spec is not None:
                name = path.relative_to(here).as_posix()
                decided = spec.check_file(f"{name}/" if directory else name).include
                if decided is not None:
                    return decided
        return False


def left_out(path: str) -> bool:
    """Return whether a path, relative to an indexed directory, is never indexed."""
    return _NEVER.match_file(path)


def is_secret(path: str) -> bool:
    """Return whether a relative path names a key file or file of secrets, in either case."""
    return _SECRET.match_file(path.lower())


def _secrets_above(path: Path, root: Path, known: dict[Path, frozenset[Identity]]) -> set[Identity]:
    """Return the secrets in the directories above a path, up to the root."""
    found: set[Identity] = set()
    for directory in path.parents:
        if not directory.is_relative_to(root):
            break
        if directory not in known:
            secrets: list[Identity] = []
            with suppress(OSError):
                names = filter(is_secret, os.listdir(directory))
                secrets += [each for name in names for each in _identity(directory / name)]
            known[directory] = frozenset(secrets)
        found |= known[directory]
    return found


def _identity(file: Path) -> Iterator[Identity]:
    """Yield the identity of a file, with links followed; nothing if it has none."""
    with suppress(OSError):
        about = file.stat()
        yield about.st_dev, about.st_ino


def _walk(top: Path, rules: _Rules, leave_out: Callable[[Path, str], None]) -> Iterator[Path]:
    """Yield what is below a directory and is no directory.

    ``leave_out`` is called with each directory that is not read, and the reason.
    """

    def unreadable(exc: OSError) -> None:
        leave_out(Path(exc.filename), exc.strerror or "cannot be read")

    for walked, names, files in os.walk(top, onerror=unreadable):
        here = Path(walked)
        if rules.ignored is not None:
            rules.ignored.read(here)
        within, names[:] = sorted(names), []
        for name in within:
            directory = here / name
            if rules.exclude(directory, directory=True):
                continue
            if is_secret(f"{directory.relative_to(top).as_posix()}/"):
                leave_out(directory, SECRET)
            elif directory.is_symlink():
                leave_out(directory, "a link to a directory; not followed")
            else:
                names.append(name)
        yield from (here / name for name in sorted(files))
