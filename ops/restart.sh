#!/bin/sh
# Restarts the service and waits until it is ready. Adapt it to what starts the service here.
set -e
systemctl restart speechgate
curl -fsS --retry 60 --retry-delay 1 --retry-all-errors "$ADMIN/readyz"
