package api

import (
	"context"
	"log/slog"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/catalogue"
	"github.com/everpost/everpost/internal/filter"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	maxWarnings       = 20
	maxWarningSchemas = 1 << 20 // bytes of all schemas that a warning looks at

	unknownField = "is in none of the schemas of these event types"
)

// filterWarnings warns of fields that a filter asks for and that no event has, as far as the catalogue knows.
type filterWarnings struct {
	types EventTypes
	log   *slog.Logger
}

// of returns a warning for each such field, maxWarnings at most; none if an event type is a pattern, or has no schema. What cannot be read is left
// out: warnings are a help only.
func (w filterWarnings) of(ctx context.Context, f *filter.Filter, types []string) []client.FieldError {
	warnings := []client.FieldError{}
	fields := f.PayloadFields()
	if len(fields) == 0 || len(types) == 0 || len(types) > webhook.MaxEventTypes {
		return warnings
	}
	for _, name := range types {
		if strings.Contains(name, "*") {
			return warnings
		}
	}
	schemas, err := w.types.NewestSchemas(ctx, types, maxWarningSchemas)
	if err != nil {
		w.log.DebugContext(ctx, "a filter is not compared with the catalogue", slog.Any("error", err))
		return warnings
	}
	known := catalogue.NewProperties(schemas)
	for _, field := range fields {
		if len(warnings) < maxWarnings && known.Lack(field.Path) {
			warnings = append(warnings, client.FieldError{Field: "filter", Pointer: field.Pointer, Message: unknownField})
		}
	}
	return warnings
}
