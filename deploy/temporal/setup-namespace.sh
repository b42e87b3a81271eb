#!/bin/sh
# Creates the namespace and its search attributes (the CLI reads TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE). Safe to repeat.
set -eu

# The port opens before the cluster answers: wait up to two minutes.
attempt=1
until temporal operator cluster health; do
	if [ "$attempt" -ge 60 ]; then
		echo "Temporal at $TEMPORAL_ADDRESS does not answer" >&2
		exit 1
	fi
	attempt=$((attempt + 1))
	sleep 2
done

# Everpost's data is in PostgreSQL. Temporal keeps a finished workflow for a day, so that it can be looked at in the Web UI.
temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
	temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 24h

temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" \
	--name TenantId --type Keyword \
	--name EndpointId --type Keyword \
	--name EventType --type Keyword \
	--name EventId --type Keyword \
	--name DeliveryState --type Keyword \
	--name EventIds --type KeywordList
