"""From the layout of the earlier TypeScript ability into that of today, embeddings kept."""

from ability_search.migration.service import Migration
from ability_search.migration.survey import OldCollection, State, Survey

__all__ = ["Migration", "OldCollection", "State", "Survey"]
