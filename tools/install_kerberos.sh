#!/usr/bin/env bash
# What the tests of Kerberos need, where apt can bring it: MIT's KDC and tools, and the headers that the package gssapi compiles against.
# Starts no service, asks nothing, and is bounded in time. Does nothing where all is there.
set -u
PATH="$PATH:/usr/sbin"
command -v krb5kdc >/dev/null && command -v kinit >/dev/null && command -v krb5-config >/dev/null && exit 0
command -v apt-get >/dev/null || { echo "kerberos: no apt-get here" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "kerberos: apt-get needs root" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d # says that no service may be started; removed again unless it was there
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" && trap 'rm -f "$policy"' EXIT
fi
packages="krb5-kdc krb5-admin-server krb5-user libkrb5-dev"
bring() {
    # shellcheck disable=SC2086
    timeout "$1" apt-get -o DPkg::Lock::Timeout=30 -o Dpkg::Use-Pty=0 install -y -qq --no-install-recommends $packages </dev/null >/dev/null 2>&1
}
bring 90 || { timeout 60 apt-get -o DPkg::Lock::Timeout=30 update -qq </dev/null >/dev/null 2>&1; bring 90; } || {
    echo "kerberos: apt-get cannot bring $packages" >&2
    exit 1
}
