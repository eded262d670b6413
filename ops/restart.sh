#!/bin/sh
# Restarts the units of docs/operate.md: the others once the first gateway, whose listener is ADMIN, is ready. Adapt it to
# what starts the service here.
set -e
systemctl restart speechgate@8081
curl -fsS --retry 60 --retry-delay 1 --retry-all-errors "$ADMIN/readyz"
systemctl restart speechgate@8082 speechgate-worker
