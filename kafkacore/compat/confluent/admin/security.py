"""confluent-kafka's calls about ACLs and SCRAM users.

Source: confluent_kafka.admin.AdminClient, confluent-kafka 2.16.
"""

from __future__ import annotations

import secrets
from concurrent.futures import Future
from typing import Any

from kafkacore import errors as ours
from kafkacore import protocol as p
from kafkacore.admin import KafkaAdminClient as Engine
from kafkacore.admin.base import not_controller
from kafkacore.admin.users import SALT_BYTES
from kafkacore.compat.confluent.admin.acls import AclBinding, AclBindingFilter, binding_of, engines_acl, engines_filter
from kafkacore.compat.confluent.admin.base import AdminBase, a_list, outcomes
from kafkacore.compat.confluent.admin.kinds import ScramMechanism
from kafkacore.compat.confluent.admin.values import (
    ScramCredentialInfo,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from kafkacore.compat.confluent.kafka_error import local
from kafkacore.net.sasl import salted_password


class SecurityAdmin(AdminBase):
    """The calls about access and users."""

    def create_acls(self, acls: list[AclBinding], **kwargs: Any) -> dict[AclBinding, Future[Any]]:
        """Adds ACLs.

        Args:
            acls: what to add, each once.
            **kwargs: request_timeout: seconds.

        Returns:
            By ACL a future of None.
        """
        options = self._options("create_acls", kwargs)
        keys = {each: engines_acl(each) for each in _each_once(acls, AclBinding, "ACL bindings")}

        def work(engine: Engine) -> dict[AclBinding, Any]:
            return outcomes(engine.create_acls(keys.values(), timeout=options.left()), keys)

        return self._each(keys, work)

    def describe_acls(self, acl_binding_filter: AclBindingFilter, **kwargs: Any) -> Future[Any]:
        """The ACLs that match.

        Args:
            acl_binding_filter: what is to match.
            **kwargs: request_timeout: seconds.

        Returns:
            A future of a list of AclBinding.
        """
        options = self._options("describe_acls", kwargs)
        if not isinstance(acl_binding_filter, AclBindingFilter):
            raise TypeError("Expected an AclBindingFilter object")
        wanted = engines_filter(acl_binding_filter)
        return self._one(lambda engine: [binding_of(each) for each in engine.describe_acls(wanted, timeout=options.left())])

    def delete_acls(self, acl_binding_filters: list[AclBindingFilter], **kwargs: Any) -> dict[AclBindingFilter, Future[Any]]:
        """Deletes the ACLs that match.

        Args:
            acl_binding_filters: what matches one of them goes.
            **kwargs: request_timeout: seconds.

        Returns:
            By filter a future of the list of deleted AclBindings.
        """
        options = self._options("delete_acls", kwargs)
        keys = {each: engines_filter(each) for each in _each_once(acl_binding_filters, AclBindingFilter, "ACL binding filters")}

        def work(engine: Engine) -> dict[AclBindingFilter, Any]:
            found = engine.delete_acls(keys.values(), timeout=options.left())
            return outcomes(found, keys, lambda deleted: [binding_of(each) for each in deleted])

        return self._each(keys, work)

    # -- users --------------------------------------------------------------------------------------------------------------------

    def describe_user_scram_credentials(self, users: list[str] | None = None, **kwargs: Any) -> Any:
        """Which SCRAM users there are; never what is kept of their passwords.

        Args:
            users: names; None for all.
            **kwargs: request_timeout: seconds.

        Returns:
            By user a future of UserScramCredentialsDescription; for None one future of these by user.
        """
        options = self._options("describe_user_scram_credentials", kwargs)
        if users is not None:
            if not isinstance(users, list):
                raise TypeError("Expected input to be list of String")
            for user in users:
                if not isinstance(user, str):
                    raise TypeError("Each value should be a string")
                if not user:
                    raise ValueError("'user' cannot be empty")

        def work(engine: Engine) -> dict[str, Any]:
            if users is not None and len(set(users)) < len(users):
                raise local("_INVALID_ARG", "Duplicate users aren't allowed in the same request")
            found = engine.describe_user_scram_credentials(users, timeout=options.left())
            if users is None:
                found.check()
            names = list(found.succeeded) if users is None else users
            given = {name: (name, kept) for name, kept in found.succeeded.items()}
            return {name: found.errors[name] if name in found.errors else _described(*given[name]) for name in names}

        if users is None:
            return self._one(work)
        return self._each(users, work)

    def alter_user_scram_credentials(self, alterations: list[UserScramCredentialAlteration], **kwargs: Any) -> dict[str, Future[Any]]:
        """Sets SCRAM credentials, or takes them away. Passwords do not leave this process: salted hashes do.

        Args:
            alterations: one for each user.
            **kwargs: request_timeout: seconds.

        Returns:
            By user a future of None.
        """
        options = self._options("alter_user_scram_credentials", kwargs)
        for each in a_list(alterations, UserScramCredentialAlteration, "alterations"):
            _check(each)

        def work(engine: Engine) -> dict[str, Any]:
            request = _request(alterations)
            left_ms = round(options.left() * 1000)
            response = engine._ask(
                p.AlterUserScramCredentialsRequest, lambda _: request, left_ms, to_controller=True, refused=not_controller("results")
            )
            return {
                each.user: ours.from_code(each.error_code, each.error_message, api="AlterUserScramCredentials") if each.error_code else None
                for each in response.results
            }

        return self._each({each.user: None for each in alterations}, work)


def _each_once(given: Any, kind: type[Any], what: str) -> list[Any]:
    wanted = a_list(given, kind, what, ValueError)
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"duplicate {what} not allowed")
    return wanted


def _described(user: str, kept: dict[str, int]) -> UserScramCredentialsDescription:
    infos = [
        ScramCredentialInfo(ScramMechanism.__members__.get(name.replace("-", "_"), ScramMechanism.UNKNOWN), iterations)
        for name, iterations in kept.items()
    ]
    return UserScramCredentialsDescription(user, infos)


def _check(alteration: Any) -> None:
    """An alteration's fields.

    Raises:
        TypeError: of another type.
        ValueError: an empty user, password or salt, or no iterations.
    """
    if not isinstance(alteration.user, str):
        raise TypeError("'user' must be a string")
    if not alteration.user:
        raise ValueError("'user' cannot be empty")
    if isinstance(alteration, UserScramCredentialUpsertion):
        info = alteration.scram_credential_info
        if not isinstance(info, ScramCredentialInfo):
            raise TypeError("Expected credential_info to be ScramCredentialInfo Type")
        for name, value in (("password", alteration.password), ("salt", b"-" if alteration.salt is None else alteration.salt)):
            if not isinstance(value, bytes):
                raise TypeError(f"'{name}' must be bytes")
            if not value:
                raise ValueError(f"'{name}' cannot be empty")
        if info.iterations < 1:
            raise ValueError("Iterations should be positive")
        mechanism = info.mechanism
    elif isinstance(alteration, UserScramCredentialDeletion):
        mechanism = alteration.mechanism
    else:
        raise TypeError("Expected UserScramCredentialUpsertion or UserScramCredentialDeletion")
    if not isinstance(mechanism, ScramMechanism):
        raise TypeError("Expected the mechanism to be ScramMechanism Type")


def _request(alterations: list[Any]) -> p.AlterUserScramCredentialsRequest:
    """One request for all, with salted hashes in place of passwords.

    Raises:
        KafkaException: a mechanism is UNKNOWN, or a password is no text.
    """
    deletions, upsertions = [], []
    for nth, each in enumerate(alterations):
        is_deletion = isinstance(each, UserScramCredentialDeletion)
        mechanism = each.mechanism if is_deletion else each.scram_credential_info.mechanism
        if mechanism is ScramMechanism.UNKNOWN:
            raise local("_INVALID_ARG", f"SCRAM mechanism must be specified at index {nth}")
        if is_deletion:
            deletions.append(p.ScramCredentialDeletion(name=each.user, mechanism=mechanism.value))
            continue
        iterations = each.scram_credential_info.iterations
        salt = secrets.token_bytes(SALT_BYTES) if each.salt is None else each.salt
        try:
            password = each.password.decode()
        except UnicodeDecodeError as error:
            raise local("_INVALID_ARG", f"the password of {each.user} is no UTF-8, which SCRAM hashes: {error.reason}") from None
        salted = salted_password(mechanism.name.replace("_", "-"), password, salt, iterations)
        upsertions.append(
            p.ScramCredentialUpsertion(name=each.user, mechanism=mechanism.value, iterations=iterations, salt=salt, salted_password=salted)
        )
    return p.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
