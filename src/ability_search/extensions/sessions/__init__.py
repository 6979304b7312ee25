"""The memory of an agent: scratchpads, tasks and what it was shown."""
