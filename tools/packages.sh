#!/bin/bash
# Debian packages that building, the lab and the tests need on this machine; installs those that are absent, and says so.
set -euo pipefail

if [ "$(id -u)" != 0 ]; then
  echo "error: this needs root, as Docker Engine and debootstrap do. Hint: run make with sudo" >&2
  exit 2
fi

declare -A purpose=(
  [debootstrap]="base images from the bundle's own packages"
  [docker.io]="Docker Engine: the lab's nodes, sessions"
  [skopeo]="images to and from a registry"
  [python3-venv]="Python environments"
  [openssh-client]="keys of a lab"
  [gcc]="the library that holds GPU shares; fakes of the tests"
  [libc6-dev]="the library that holds GPU shares; fakes of the tests"
  [busybox-static]="a tiny image for the tests"
  [rpm]="RPM packages for the tests"
  [dnf]="installing RPM packages in the tests"
  [iproute2]="a network with no way out in the tests"
  [gnupg]="signatures of the tests' RPM packages"
  [libfaketime]="nodes with a wrong clock in the tests"
  [nftables]="packet rules of sessions in the tests"
  [nginx-light]="the edge in the tests"
  [pgbackrest]="the archive of the database's log in the tests"
  [postgresql]="the control API's database in the tests"
  [munge]="keys of Slurm in the tests"
  [slurm-client]="Slurm's commands in the tests"
  [slurmctld]="Slurm's controller in the tests"
  [slurmd]="Slurm's nodes in the tests"
  [slapd]="a directory (LDAP) in the tests"
  [ldap-utils]="changes of the directory in the tests"
  [systemd-journal-remote]="journals of many nodes in the tests"
  [softhsm2]="a PKCS#11 token in the tests"
  [npm]="front-end files"
  [procps]="pgrep in the tests"
  [gcc-aarch64-linux-gnu]="the library that holds GPU shares, for arm64"
  [libc6-dev-arm64-cross]="the library that holds GPU shares, for arm64"
  [musl-tools]="programs of another C library in the tests"
  [qemu-user-static]="programs of arm64 in the tests"
  [chromium]="a browser for the tests"
)
# A program that is there already counts, whoever installed it.
declare -A program=([docker.io]=dockerd [npm]=npm [chromium]=chromium [gcc]=gcc [openssh-client]=ssh-keygen [skopeo]=skopeo [debootstrap]=debootstrap
  [rpm]=rpmbuild [gnupg]=gpg [procps]=pgrep [slapd]=slapd [ldap-utils]=ldapmodify)

missing=()
for package in $(printf '%s\n' "${!purpose[@]}" | sort); do
  if [ -n "${program[$package]:-}" ] && command -v "${program[$package]}" >/dev/null; then continue; fi
  if dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then continue; fi
  missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

printf '\n\033[1m== Debian packages to install on this machine:\033[0m\n'
for package in "${missing[@]}"; do printf '   %-16s %s\n' "$package" "${purpose[$package]}"; done

apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
