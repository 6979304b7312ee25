"""Plugin of the tools over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.config.setting_fields import Group
from ability_search.extension import Command, HealthCheck, StackComponent, hookimpl
from ability_search.extensions.gateway.settings import Gateway


@hookimpl
def register_settings() -> Sequence[type[Group]]:
    return (Gateway,)


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("gateway", "ability_search.extensions.gateway.gateway_command", 300),)


@hookimpl
def register_components() -> Sequence[StackComponent]:
    from ability_search.config.schema import Broker

    return (
        StackComponent(
            "gateway",
            60,
            ("gateway",),
            (Broker, Gateway),
            extra="gateway",
            address=lambda settings: (settings.of(Gateway).host, settings.of(Gateway).port),
        ),
    )


@hookimpl
def register_checks() -> Sequence[HealthCheck]:
    from ability_search.extensions.gateway.network_state import check_gateway

    return (HealthCheck("gateway", check_gateway),)
