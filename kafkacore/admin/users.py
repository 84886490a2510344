"""SCRAM's users (KIP-554).

Source: Kafka's KafkaAdminClient.{describeUserScramCredentials, alterUserScramCredentials}.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping

from kafkacore import errors
from kafkacore.admin.base import AdminBase, ItemResults, complete, not_controller
from kafkacore.net.sasl import MIN_ITERATIONS, salted_password
from kafkacore.protocol import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramUserName,
)

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SALT_BYTES = 24


class UsersAdmin(AdminBase):
    """The calls about users that authenticate with SCRAM."""

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> ItemResults[str, dict[str, int]]:
        """Which users there are; never what is kept of their passwords.

        Args:
            users: their names; None for all.
            timeout: seconds.

        Returns:
            By user, how often each of its mechanisms hashes. Typical error: ResourceNotFound.
        """
        names = None if users is None else [ScramUserName(name=name) for name in dict.fromkeys(users)]
        if names == []:
            return ItemResults({}, {})
        response = self._ask(
            DescribeUserScramCredentialsRequest,
            lambda version: DescribeUserScramCredentialsRequest(users=names),
            self._timeout_ms(timeout),
        )
        errors.raise_for(response.error_code, response.error_message, api="DescribeUserScramCredentials")
        words = {number: name for name, number in MECHANISMS.items()}
        found: dict[str, dict[str, int]] = {}
        failed: dict[str, errors.KafkaError] = {}
        for each in response.results:
            if each.error_code:
                failed[each.user] = errors.from_code(each.error_code, each.error_message, api="DescribeUserScramCredentials")
            else:
                found[each.user] = {words.get(info.mechanism, "unknown"): info.iterations for info in each.credential_infos}
        results = ItemResults(found, failed)
        return results if names is None else complete(results, [name.name for name in names], "DescribeUserScramCredentials")

    def alter_user_scram_credentials(
        self, passwords: Mapping[tuple[str, str], str | None], *, iterations: int = MIN_ITERATIONS, timeout: float | None = None
    ) -> ItemResults[tuple[str, str], None]:
        """Makes users, gives them other passwords, or takes them away. Passwords do not leave this process: salted hashes do.

        Args:
            passwords: by (user, mechanism), the mechanism SCRAM-SHA-256 or SCRAM-SHA-512; None takes the user's credential away.
            iterations: how often is hashed.
            timeout: seconds.

        Returns:
            By user and mechanism. Typical errors: ResourceNotFound, UnacceptableCredential.

        Raises:
            errors.UsageError: a mechanism that is none of the two, or an empty password.
        """
        for user, mechanism in passwords:
            if mechanism not in MECHANISMS:
                raise errors.UsageError(f"a mechanism is one of {', '.join(MECHANISMS)}, not {mechanism!r}")
            if passwords[user, mechanism] == "" or iterations < 1:
                raise errors.UsageError(f"the password of {user!r} is empty, or iterations is not positive")
        deadline_ms = self._deadline_ms(timeout)
        made: dict[tuple[str, str], None] = {}
        failed: dict[tuple[str, str], errors.KafkaError] = {}
        for mechanism in MECHANISMS:  # a request may name a user once
            wanted = {user: password for (user, one), password in passwords.items() if one == mechanism}
            if not wanted:
                continue
            build = _alteration(mechanism, wanted, iterations)
            try:
                response = self._ask(
                    AlterUserScramCredentialsRequest,
                    build,
                    self._left_ms(deadline_ms),
                    to_controller=True,
                    refused=not_controller("results"),
                )
            except errors.KafkaError as error:  # what the request before has done stands
                failed |= dict.fromkeys(((user, mechanism) for user in wanted), error)
                continue
            for each in response.results:
                if each.error_code:
                    failed[each.user, mechanism] = errors.from_code(each.error_code, each.error_message, api="AlterUserScramCredentials")
                else:
                    made[each.user, mechanism] = None
        return complete(ItemResults(made, failed), passwords, "AlterUserScramCredentials")


def _alteration(mechanism: str, passwords: Mapping[str, str | None], iterations: int) -> Callable[[int], AlterUserScramCredentialsRequest]:
    number = MECHANISMS[mechanism]
    upsertions = []
    for user, password in passwords.items():
        if password is not None:
            salt = secrets.token_bytes(SALT_BYTES)
            salted = salted_password(mechanism, password, salt, iterations)
            upsertions.append(
                ScramCredentialUpsertion(name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted)
            )
    deletions = [ScramCredentialDeletion(name=user, mechanism=number) for user, password in passwords.items() if password is None]
    return lambda _version: AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
