#!/bin/bash
# A Docker Engine that answers: the one that runs, or systemd's, or a dockerd of our own where there is no systemd.
set -euo pipefail

if docker info >/dev/null 2>&1; then exit 0; fi
printf '\n\033[1m== Docker Engine: starting it\033[0m\n'
if [ -d /run/systemd/system ]; then
  systemctl start docker
else
  mkdir -p /var/log/penstock
  rm -f /var/run/docker.pid
  setsid dockerd >/var/log/penstock/dockerd.log 2>&1 </dev/null &
fi
for _ in $(seq 60); do
  if docker info >/dev/null 2>&1; then echo "   Docker Engine $(docker version --format '{{.Server.Version}}') answers"; exit 0; fi
  sleep 1
done
echo "error: Docker Engine does not answer after 60 s. Hint: read /var/log/penstock/dockerd.log, or run 'systemctl status docker'" >&2
tail -n 20 /var/log/penstock/dockerd.log 2>/dev/null >&2 || true
exit 5
