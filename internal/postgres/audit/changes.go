package audit

import (
	"reflect"
	"slices"
)

// Changed returns the API's names of the fields that differ, for the audit log: names,
// never values. It uses reflection, so that it covers every new field.
func Changed[T any](before, after *T) []string {
	names := []string{}
	b, a := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range b.NumField() {
		if empty(b.Field(i)) && empty(a.Field(i)) || reflect.DeepEqual(b.Field(i).Interface(), a.Field(i).Interface()) {
			continue
		}
		if name := apiName(b.Type().Field(i).Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// apiName is the API's name of a field of an endpoint, a tenant or its limits:
// max_in_flight for MaxInFlight.
func apiName(field string) string {
	switch field {
	case "AutoTimeout":
		return "timeout"
	case "Certificate":
		return "client_certificate"
	case "RateLimit":
		return "rate_limit_per_second"
	}
	name := make([]byte, 0, 2*len(field))
	for i := range len(field) {
		upper := 'A' <= field[i] && field[i] <= 'Z'
		if upper && i > 0 && (field[i-1] < 'A' || field[i-1] > 'Z') {
			name = append(name, '_')
		}
		if upper {
			name = append(name, field[i]+'a'-'A')
		} else {
			name = append(name, field[i])
		}
	}
	return string(name)
}

// empty reports a map or list without entries: nil and {} are stored alike.
func empty(v reflect.Value) bool {
	return (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}
