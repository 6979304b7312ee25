"""The settings of a worker that `kadi deploy` has started; see :mod:`.schema`."""

from __future__ import annotations

from pydantic import SecretStr

from ability_search.configuration.fields import Group, WebSocketUrl, setting

_HOME = "set by `kadi deploy`"


class Deployment(Group):
    """Secrets that a worker asks its deployer for when it starts."""

    prefix = "deploy_"
    secrets_timeout: float = setting(
        60.0, about="Longest wait for the deployer's answer.", unit="seconds", gt=0, le=3600
    )
    nonce: SecretStr | None = setting(
        None,
        env=("KADI_DEPLOY_NONCE",),
        home=_HOME,
        about="Proves to the deployer that its deployment asks; without it nothing is asked.",
        min_length=1,
    )
    required_secrets: tuple[str, ...] = setting(
        (), env=("KADI_REQUIRED_SECRETS",), home=_HOME, about="Secrets that the worker must get."
    )
    optional_secrets: tuple[str, ...] = setting(
        (), env=("KADI_OPTIONAL_SECRETS",), home=_HOME, about="Secrets that it may get."
    )
    rendezvous_broker: WebSocketUrl | None = setting(
        None,
        env=("KADI_RENDEZVOUS_BROKER",),
        home=_HOME,
        about="Broker where the deployer listens.",
        default_text="the worker's broker",
    )

    @property
    def awaited(self) -> tuple[str, ...]:
        """Names of the secrets to ask for; none without a nonce."""
        if self.nonce is None:
            return ()
        return tuple(dict.fromkeys((*self.required_secrets, *self.optional_secrets)))
