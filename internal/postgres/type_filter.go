package postgres

import (
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// TypePasses is webhook.FilterMatches in SQL: whether the event type in a column passes one
// of the filters. It compares bytes, whatever the database's collation and whatever LIKE
// takes for a wildcard ("_" is one), and is a condition on rows that an index has chosen:
// types have none of their own, which every event would pay for.
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

// oneOf is what an operator compares with: a value, or any of several.
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
