#!/usr/bin/env bash
# Installs the named Debian packages that some tests use, where that is possible (root, apt-get).
# Otherwise says in one line which tests will be skipped; never fails the build.
set -uo pipefail
missing=()
for package in "$@"; do
  command -v "$package" >/dev/null || missing+=("$package")
done
[[ ${#missing[@]} == 0 ]] && exit 0
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "-- installing ${missing[*]} with apt-get (used by tests only)"
  export DEBIAN_FRONTEND=noninteractive
  if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; then
    exit 0
  fi >/dev/null 2>&1
fi
echo "-- ${missing[*]} not installed (needs root and apt-get): the tests that use it are skipped"
