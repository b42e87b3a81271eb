#!/bin/sh
# Migrates Temporal's databases, which create-databases.sh creates, to the version of the tools, which contain the
# schemas. Safe to repeat: setup-schema does not change a newer version, update-schema applies what is missing.
set -eu

temporal-sql-tool --database temporal setup-schema --version 0.0
temporal-sql-tool --database temporal update-schema --schema-name postgresql/v12/temporal

temporal-sql-tool --database temporal_visibility setup-schema --version 0.0
temporal-sql-tool --database temporal_visibility update-schema --schema-name postgresql/v12/visibility
