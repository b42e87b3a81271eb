#!/bin/sh
# Brings Temporal's databases, which create-databases.sh made, to the version of the tools; the schemas are embedded
# in them. Safe to repeat: setup-schema leaves a newer version alone, update-schema applies what is missing.
set -eu

temporal-sql-tool --database temporal setup-schema --version 0.0
temporal-sql-tool --database temporal update-schema --schema-name postgresql/v12/temporal

temporal-sql-tool --database temporal_visibility setup-schema --version 0.0
temporal-sql-tool --database temporal_visibility update-schema --schema-name postgresql/v12/visibility
