"""Who a Kerberos principal is: the user's name that `sasl.kerberos.principal.to.local.rules` makes of it.

    alice@EXAMPLE.COM, host/web.example.com@EXAMPLE.COM --RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//, DEFAULT--> alice

    DEFAULT                                     the first part, in the default realm alone
    RULE:[n:string](pattern)s/from/to/g/L       names of n parts: string with $0 (realm), $1, $2; if all of it fits the pattern, what is
                                                found is replaced, once or (g) everywhere; then small (L) or capital (U) letters

Rules:

1. The first rule that fits counts; where none does, or where its result still has a / or an @, the client is not let in.
   [test_a_users_name, test_who_has_no_name]
2. Patterns and replacements are Java's; those that Python's `re` does not take are refused when the rules are read.
   [test_rules_that_are_none]

Source: org.apache.kafka.common.security.kerberos: KerberosName, KerberosRule, KerberosShortNamer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kafkacore.errors import ConfigError, SaslAuthentication
from kafkacore.principals import java_pattern, java_replacement

_RULE = re.compile(r"(?P<default>DEFAULT)|RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)](?:\((?P<match>[^)]*)\))?"
                   r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?")  # fmt: skip
_NAME = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_REFERENCE = re.compile(r"\$(\d*)")


class _Rule(NamedTuple):
    text: str
    parts: int
    format: str
    match: re.Pattern[str] | None
    replaced: re.Pattern[str] | None
    replacement: tuple[str | int, ...]
    times: int
    case: str

    def apply(self, params: Sequence[str]) -> str | None:
        """The name that this rule makes; None where it does not fit.

        Raises:
            SaslAuthentication: it makes none.
        """
        if len(params) - 1 != self.parts:
            return None
        base = _REFERENCE.sub(lambda found: params[int(found[1])] if found[1] else "", self.format)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        name = base if self.replaced is None else self.replaced.sub(self._put, base, count=self.times)
        if "/" in name or "@" in name:
            raise SaslAuthentication(f"Kerberos name {name!r} is not simple after rule {self.text}")
        return {"L": name.lower, "U": name.upper}.get(self.case, name.__str__)()

    def _put(self, match: re.Match[str]) -> str:
        return "".join(each if isinstance(each, str) else match[each] or "" for each in self.replacement)


def _rule(text: str) -> _Rule | None:
    match = _RULE.fullmatch(text)
    if match is None or match["parts"] == "":
        raise ValueError("it is neither DEFAULT nor of the form RULE:[n:string](pattern)s/from/to/g/L")
    if match["default"]:
        return None
    parts = int(match["parts"])
    for found in _REFERENCE.finditer(match["format"]):
        if not found[1] or int(found[1]) > parts:
            raise ValueError(f"{found[0]} is none of $0 to ${parts}")
    fits, replaced = (None if each is None else re.compile(java_pattern(each), re.ASCII) for each in (match["match"], match["from"]))
    replacement = () if replaced is None else java_replacement(match["to"], replaced)
    return _Rule(text, parts, match["format"], fits, replaced, replacement, 0 if match["all"] else 1, match["case"] or "")


class LocalNames:
    """`sasl.kerberos.principal.to.local.rules`, read.

    Args:
        rules: one each.

    Raises:
        ConfigError: one is none, or Python's `re` does not take its pattern.
    """

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules: list[_Rule | None] = []
        for text in rules:
            try:
                self._rules.append(_rule(text))
            except (re.error, ValueError, OverflowError, RecursionError) as error:
                raise ConfigError(f"sasl_kerberos_principal_to_local_rules: {text!r} cannot be used: {error}") from None

    def name(self, principal: str, default_realm: str) -> str:
        """The user's name.

        Args:
            principal: as alice@REALM or kafka/host@REALM.
            default_realm: of krb5.conf.

        Raises:
            SaslAuthentication: it has none.
        """
        match = _NAME.fullmatch(principal)
        if match is None:
            if "@" in principal or not principal:
                raise SaslAuthentication(f"{principal!r} is not a Kerberos name of one or two parts and a realm")
            return principal
        params = [match["realm"], match["first"], *([] if match["second"] is None else [match["second"]])]
        for rule in self._rules:
            if rule is None:
                if params[0] == default_realm:
                    return self._named(params[1], principal)
            elif (name := rule.apply(params)) is not None:
                return self._named(name, principal)
        raise SaslAuthentication(f"no rule of sasl.kerberos.principal.to.local.rules fits the Kerberos name {principal!r}")

    @staticmethod
    def _named(name: str, principal: str) -> str:
        if not name:
            raise SaslAuthentication(f"the Kerberos name {principal!r} makes an empty user name")
        return name
