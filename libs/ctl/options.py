"""Options that verbs share: how to reach the cluster and NATS, and the pool. Light to import."""

import re
from typing import Annotated, Any, Final

import msgspec
import typer

from libs.ctl.failures import ExitCode, Failure

MOST: Final = 2**31 - 1
"""The largest number that an option takes, as a field of a policy."""
_DEFAULT_CLUSTER: Final = "default"
_NAMESPACE: Final = re.compile("[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach Kubernetes and NATS; empty: not given."""

    kubeconfig: str = ""
    namespace: str = ""
    nats: str = ""
    token_file: str = ""
    nkey_seed_file: str = ""
    """Gone: `check` refuses it."""
    ca_file: str = ""
    cluster: str = _DEFAULT_CLUSTER

    @property
    def has_credentials(self) -> bool:
        """Whether credentials for NATS are given."""
        return bool(self.token_file)

    def check(self) -> None:
        """Refuse what is gone, and names that would become parts of a subject or of a path."""
        if self.nkey_seed_file:
            raise Failure(
                ExitCode.WRONG_ARGUMENTS,
                f"{named_by('nkey_seed_file')} is gone: NATS has no keys of people any more; leave"
                f" it out, and a token is requested for you, or name one with"
                f" {named_by('token_file')}",
            )
        if self.cluster != _DEFAULT_CLUSTER:
            from libs.contracts.subjects import check_cluster

            try:
                check_cluster(self.cluster)
            except ValueError as error:
                raise Failure(ExitCode.WRONG_ARGUMENTS, f"--cluster: {error}") from None
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise Failure(
                ExitCode.WRONG_ARGUMENTS,
                f"--namespace: {self.namespace[:80]!r} cannot be the name of a namespace: up to 63"
                " of a-z, 0-9 and '-'",
            )


ACCESS_OPTIONS: Final[dict[str, Any]] = {
    "kubeconfig": Annotated[
        str,
        typer.Option("--kubeconfig", metavar="FILE", help="Instead of $KUBECONFIG."),
    ],
    "namespace": Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            envvar="SLUICE_NAMESPACE",
            metavar="NAME",
            help="Namespace of Sluice; by default the one that has the account sluice-ctl.",
        ),
    ],
    "nats": Annotated[
        str,
        typer.Option("--nats", envvar="SLUICE_NATS_URL", metavar="URL", help="Address of NATS."),
    ],
    "token_file": Annotated[
        str,
        typer.Option(
            "--token-file",
            envvar="SLUICE_NATS_TOKEN_FILE",
            metavar="FILE",
            help="Token for NATS; by default one is requested for the account sluice-ctl.",
        ),
    ],
    "nkey_seed_file": Annotated[
        str,
        typer.Option(
            "--nkey-seed-file",
            envvar="SLUICE_NATS_NKEY_SEED_FILE",
            hidden=True,
        ),
    ],
    "ca_file": Annotated[
        str,
        typer.Option(
            "--ca-file",
            envvar="SLUICE_NATS_CA_FILE",
            metavar="FILE",
            help="CA that signed NATS's certificate.",
        ),
    ],
    "cluster": Annotated[
        str,
        typer.Option(
            "--cluster",
            envvar="SLUICE_NATS_CLUSTER",
            metavar="NAME",
            help="Name of this cluster on the bus.",
        ),
    ],
}
"""The option of each field of `Access`."""


def named_by(field: str) -> str:
    """Return how a person gives a field of `Access`: by its option, or by its variable if any."""
    option, variable = f"--{field.replace('_', '-')}", ACCESS_OPTIONS[field].__metadata__[0].envvar
    return f"{option} or {variable}" if variable else option


Pool = Annotated[str, typer.Argument(metavar="[POOL]", help="By default the only one.")]
PoolOption = Annotated[str, typer.Option("--pool", hidden=True)]
"""The same as POOL, for those who write it as an option."""


def one_pool(pool: str, option: str) -> str:
    """Return the pool that is named, as POOL or as --pool."""
    if pool and option and pool != option:
        raise typer.BadParameter(f"{pool} and --pool {option} are two pools: name one")
    return pool or option
