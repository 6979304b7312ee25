"""Collections as records of a store: their own, those of their generations, and retired ones."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from ability_search.collection import Collection
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.values import (
    Delete,
    Put,
    Read,
    Record,
    Records,
    Scalar,
    of_collection,
    of_generation,
)

COLLECTION: Final = "collection"
"""Kind of the records of collections; the key is the name, ``name@token`` while it is built."""
_RETIRED: Final = "retired"
"""Kind of the records of generations that are to be dropped when the lease is over."""
_FIELDS = tuple(each.name for each in fields(Collection) if each.name not in ("name", "record"))


def collection_of(record: Record) -> Collection:
    """Return the collection that a record holds."""
    known = {name: record.fields[name] for name in _FIELDS if name in record.fields}
    known["kinds"] = tuple(known.get("kinds", ()))
    return Collection(name=record.key[0], record=record.revision, **known)


def collection_fields(collection: Collection) -> dict[str, Any]:
    """Return the fields of the record of a collection."""
    return {name: getattr(collection, name) for name in _FIELDS}


def put_collection(collection: Collection, *, where: dict[str, Scalar | None] | None = None) -> Put:
    """Return the change that stores a record: a new one, or one with the fields ``where``."""
    name = collection.name
    revision = 0 if where is None else None
    return Put(
        COLLECTION,
        of_collection(name),
        (name,),
        collection_fields(collection),
        revision=revision,
        where=where,
    )


def change_collection(collection: Collection, changes: dict[str, Any]) -> Put:
    """Return the change of some fields of a record, if it is on this generation."""
    name, where = collection.name, {"type": collection.type}
    return Put(COLLECTION, of_collection(name), (name,), changes, merge=True, where=where)


def delete_collection(collection: Collection, **where: Scalar) -> Delete:
    """Return the deletion of a record; refused if it has not these fields."""
    return Delete(replace(records_named(collection.name), where=where), count=1)


def discard_record(name: str) -> Delete:
    """Return the deletion of a record, if it is there."""
    return Delete(records_named(name))


def records_named(name: str) -> Records:
    """Return the selection of one record of a collection."""
    return Records(COLLECTION, of_collection(name), keys=[(name,)])


async def read_collection(store: Store, name: str) -> Collection | None:
    """Return the record of that name; ``name@token`` is one under construction."""
    found = await read_all(store, Read(records_named(name)))
    return collection_of(found[0]) if found else None


async def read_collections(store: Store) -> list[Collection]:
    """Return all records by name, those under construction included."""
    found = map(collection_of, await read_all(store, Read(Records(COLLECTION))))
    return sorted(found, key=lambda each: each.name)


def retire(generation: str, *, grace: int) -> Put:
    """Return the change that lets a generation be dropped after ``grace`` milliseconds."""
    fields = {"type": generation}
    return Put(_RETIRED, of_generation(generation), (), fields, lease=grace)


async def due_generations(store: Store) -> list[str]:
    """Return the retired generations whose grace is over."""
    found = await read_all(store, Read(Records(_RETIRED, expired=True)))
    return [record.fields["type"] for record in found]
