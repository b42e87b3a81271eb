package retry

import (
	"strconv"
	"strings"
	"time"
)

// FieldError describes one invalid setting of a policy.
type FieldError struct {
	Field   string // the path within the policy, "schedule[2]"; "" for the whole policy
	Message string // text for people: "must be between 1ms and 720h"
}

// FieldErrors are all invalid settings of a policy. A returned FieldErrors is never empty.
//
//nolint:recvcheck // an error is used as a value; add needs a pointer
type FieldErrors []FieldError

// Error joins all messages: "base: must be …; factor: must be …".
func (e FieldErrors) Error() string {
	var text strings.Builder
	for i, one := range e {
		if i > 0 {
			text.WriteString("; ")
		}
		if one.Field != "" {
			text.WriteString(one.Field)
			text.WriteString(": ")
		}
		text.WriteString(one.Message)
	}

	return text.String()
}

func (e *FieldErrors) add(field, message string) {
	*e = append(*e, FieldError{Field: field, Message: message})
}

// addOnce adds an error unless the field has one already.
func (e *FieldErrors) addOnce(field, message string) {
	if !e.has(field) {
		e.add(field, message)
	}
}

// has reports whether the field, or one of its elements, has an error.
func (e *FieldErrors) has(field string) bool {
	for _, one := range *e {
		if one.Field == field || strings.HasPrefix(one.Field, field+"[") {
			return true
		}
	}

	return false
}

//nolint:unparam // the longest delay and the longest give-up time are the same at present
func (e *FieldErrors) within(field string, value, low, high time.Duration) {
	if value < low || value > high {
		e.add(field, "must be between "+FormatDuration(low)+" and "+FormatDuration(high))
	}
}

func (e *FieldErrors) between(field string, value, low, high int) {
	if value < low || value > high {
		e.add(field, "must be between "+strconv.Itoa(low)+" and "+strconv.Itoa(high))
	}
}

// orNil returns a nil error for an empty list.
func (e *FieldErrors) orNil() error {
	if len(*e) == 0 {
		return nil
	}

	return *e
}

// indexed returns "field[i]".
func indexed(field string, i int) string {
	return field + "[" + strconv.Itoa(i) + "]"
}
