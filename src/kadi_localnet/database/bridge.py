"""The Java classes that calls meet, wrapped by one thread before the first call.

The bridge (JPype 1.7.1) makes the Python wrapper of a Java class in two steps, and between them
other threads may run. One that then meets the class as a parameter, even of an overload that it
does not choose, follows a null pointer, and the process ends with SIGSEGV. So the wrappers of all
parameters of whatever may be called here, of errors and rare statements too, are made in advance.
Classes that are wrapped later are parameters of nothing that is called.

Which these are is read from the code that calls: the classes and methods that it names.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from itertools import chain
from pathlib import Path
from types import CodeType

import jpype

_CLASS = re.compile(r"(?:com|java|org)(?:\.[a-z]\w*)+\.[A-Z][\w$]*")
_BRIDGE = "_j"
"""Prefix of the bridge's own modules, which call Java for ``str``, ``for``, ``len``, ..."""
_CONCRETE = ("com.arcadedb.database.LocalDatabase",)
"""Classes of objects that are returned as an interface and overload its methods."""


@cache
def wrap_classes() -> None:
    """Wrap all parameters and results of the methods that this package may call, once.

    Those of the classes that it names, and of the classes that these methods return.
    """
    methods, named = _called()
    waiting = [jpype.JClass(name).class_ for name in named]
    wrapped = set(map(jpype.JClass, waiting))
    for java in waiting:
        for each in java.getConstructors():
            wrapped.update(map(jpype.JClass, each.getParameterTypes()))
    seen = set(named)
    while waiting:
        for each in waiting.pop().getMethods():
            if str(each.getName()) not in methods:
                continue
            wrapped.update(map(jpype.JClass, each.getParameterTypes()))
            result = each.getReturnType()
            wrapped.add(jpype.JClass(result))
            if (name := str(result.getName())) not in seen:
                seen.add(name)
                waiting.append(result)


def _called() -> tuple[set[str], set[str]]:
    """Return the names of all methods that may be called, and of the classes that are named."""
    own = list(chain.from_iterable(map(_parts, _modules(str(Path(__file__).parent)))))
    bridge = chain.from_iterable(map(_parts, _modules(str(Path(jpype.__file__).parent), _BRIDGE)))
    methods = {name for code in (*own, *bridge) for name in code.co_names}
    texts = {each for code in own for each in code.co_consts if isinstance(each, str)}
    return methods, {each for each in texts if _CLASS.fullmatch(each)} | set(_CONCRETE)


def _modules(directory: str, prefix: str = "") -> Iterator[CodeType]:
    """Yield the code of a directory's modules whose names begin so, without running it."""
    for module in pkgutil.iter_modules([directory]):
        if module.name.startswith(prefix):
            path = str(Path(directory, f"{module.name}.py"))
            code = SourceFileLoader(module.name, path).get_code(module.name)
            assert code is not None
            yield code


def _parts(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and those of the classes and functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _parts(each)
