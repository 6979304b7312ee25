"""Settings of a worker started by `kadi deploy`; see :mod:`.schema`."""

from __future__ import annotations

from pydantic import SecretStr

from ability_search.config.setting_fields import Group, WebSocketUrl, setting

_HOME = "set by `kadi deploy`"


class Deployment(Group):
    """Deployment: secrets that a worker requests from its deployer at startup."""

    prefix = "deploy_"
    secrets_timeout: float = setting(
        60.0, about="Timeout for the deployer's answer.", unit="seconds", gt=0, le=3600
    )
    nonce: SecretStr | None = setting(
        None,
        env=("KADI_DEPLOY_NONCE",),
        home=_HOME,
        about="Nonce that authenticates the request; if unset, no secrets are requested.",
        min_length=1,
    )
    required_secrets: tuple[str, ...] = setting(
        (), env=("KADI_REQUIRED_SECRETS",), home=_HOME, about="Secrets that the worker requires."
    )
    optional_secrets: tuple[str, ...] = setting(
        (),
        env=("KADI_OPTIONAL_SECRETS",),
        home=_HOME,
        about="Secrets that the worker requests but does not require.",
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
        """Names of the secrets to request; none without a nonce."""
        if self.nonce is None:
            return ()
        return tuple(dict.fromkeys((*self.required_secrets, *self.optional_secrets)))
