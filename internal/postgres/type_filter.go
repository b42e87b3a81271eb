package postgres

import (
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// TypePasses is webhook.FilterMatches in SQL: whether the event type in a column matches one of
// the filters. It compares bytes: neither the database's collation nor the wildcards of LIKE
// ("_" is one) matter. It filters rows that another index has found: an index on types would
// cost every event.
func (q *FilterQuery) TypePasses(column string, filters ...string) string {
	var conditions, names, prefixes []string
	for _, filter := range filters {
		prefix, wildcard := webhook.FilterPrefix(filter)
		switch {
		case filter == "*":
			conditions = append(conditions, "not "+IsOperational(column))
		case wildcard:
			prefixes = append(prefixes, prefix)
		default:
			names = append(names, filter)
		}
	}
	if len(names) > 0 {
		conditions = append(conditions, column+" = "+q.oneOf(names))
	}
	if len(prefixes) > 0 {
		conditions = append(conditions, column+" ^@ "+q.oneOf(prefixes)) // begins with
	}
	if len(conditions) == 0 {
		return "false"
	}
	return "(" + strings.Join(conditions, " or ") + ")"
}

// oneOf is the right side of a comparison: one value, or any of several.
func (q *FilterQuery) oneOf(values []string) string {
	if len(values) == 1 {
		return q.Arg(values[0])
	}
	return "any(" + q.Arg(values) + "::text[])"
}

// IsOperational is webhook.IsOperational in SQL.
func IsOperational(column string) string {
	return column + " ^@ '" + webhook.OperationalPrefix + "'"
}
