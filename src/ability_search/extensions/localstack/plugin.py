"""Plugin of the stack on one machine."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.config.setting_fields import Group
from ability_search.extension import Command, StackComponent, hookimpl
from ability_search.extensions.localstack.settings import Arcadedb, Deployment, LocalBroker, Models


@hookimpl
def register_settings() -> Sequence[type[Group]]:
    """Return the settings."""
    return (Deployment, LocalBroker, Models, Arcadedb)


@hookimpl
def register_commands() -> Sequence[Command]:
    """Return the commands."""
    return (
        Command("setup", "ability_search.extensions.localstack.setup", 10),
        Command("trust", "ability_search.extensions.localstack.setup", 20),
        Command("up", "ability_search.extensions.localstack.stack_commands", 30),
        Command("status", "ability_search.extensions.localstack.stack_commands", 40),
        Command("down", "ability_search.extensions.localstack.stack_commands", 50),
        Command("prune", "ability_search.extensions.localstack.stack_commands", 60),
        Command("doctor", "ability_search.extensions.localstack.health_checks", 70),
        Command("worker", "ability_search.extensions.localstack.contexts", 310),
        Command("broker", "ability_search.extensions.localstack.contexts", 320),
        Command("backplane", "ability_search.extensions.localstack.contexts", 330),
        Command("database", "ability_search.extensions.localstack.contexts", 340),
        Command("models", "ability_search.extensions.localstack.served_models", 350),
    )


@hookimpl
def register_components() -> Sequence[StackComponent]:
    """Return the components of the stack."""
    from ability_search.config.model_settings import Embedding, Expansion, RerankerSettings
    from ability_search.config.schema import Broker
    from ability_search.extensions.cli.tool_calls import NEEDED_TOOLS

    worker = (Broker, Deployment, Embedding, RerankerSettings, Expansion)
    return (
        StackComponent("backplane", 10, ("backplane",), ()),
        StackComponent("broker", 20, ("broker",), (LocalBroker,)),
        StackComponent("database", 30, ("database",), (Broker, Arcadedb), NEEDED_TOOLS["database"]),
        StackComponent("models", 40, ("models", "serve"), (Broker, Models), NEEDED_TOOLS["models"]),
        StackComponent("worker", 50, ("worker",), worker, NEEDED_TOOLS["worker"]),
    )
